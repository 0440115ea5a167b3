"""Tells systemd how a service is (sd_notify(3)): it is ready, it lives, it reloads, it stops.

Without $NOTIFY_SOCKET, which systemd sets for units of Type=notify, nothing happens.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, MutableMapping
from math import inf

from onceway.base import waits
from onceway.host.patience import MainThread, Patience, main_thread


class Notifier:
    """Nothing here raises or waits: a service does not depend on who watches it."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Takes its variables out of the environment, so that child processes do not speak for this one."""
        address = environment.pop("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        within_us = environment.pop("WATCHDOG_USEC", "")
        for_us = environment.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._alive_every_s = int(within_us) / 1e6 / 2 if within_us.isdecimal() and for_us else inf
        self._status = ""
        self._ready = False

    def ready(self) -> None:
        """The service has started; repeated calls do nothing. After `reloading`: it has reloaded."""
        if not self._ready:
            self._ready = True
            self._send("READY=1")

    def reloading(self) -> None:
        self._ready = False
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """For `systemctl status`, in one line; it is sent where it has changed."""
        text = "; ".join(text.splitlines())
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def watch(self, turns: Callable[[], int], thread: MainThread = main_thread) -> threading.Event:
        """Tells it that the service works, as long as the turns of its event loop end (`onceway.host.patience`), until
        the event is set. A thread of its own does: the loop would be late where the machine is busy.

        Args:
            turns: How many have ended.
        """
        over = threading.Event()

        def tell() -> None:
            patience = Patience(os.getpid(), time.monotonic(), self._alive_every_s, thread)
            while True:
                patience.look(time.monotonic(), turns())
                if patience.silent_s < self._alive_every_s:
                    self._send("WATCHDOG=1")
                if waits.PAUSE(over).wait(self._alive_every_s / 2):
                    return

        if self._address and self._alive_every_s < inf:
            threading.Thread(target=tell, name="watchdog", daemon=True).start()
        return over

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(text.encode(), self._address)
        except OSError:
            pass
