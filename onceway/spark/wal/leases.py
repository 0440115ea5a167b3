"""Leases: which of several processes writes a slot, where no lock of an operating system tells.

A lease is a document that its holder changes every few seconds.  Who finds it unchanged for `leaseTimeout` by its own
clock takes it: clocks of different hosts are never compared.  A holder that was frozen meanwhile finds out when it
renews.  The lease only keeps processes from taking the slot from each other all the time; what keeps a thawed holder's
rows out of the log is the fence (`fencing`, `bucket`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from onceway.base import waits
from onceway.spark.errors import TWO_READERS, WalError, WalLocked
from onceway.spark.wal.documents import Document

LASTS_S: Final = 10.0
LOOKS: Final = 20  # how often one that waits looks while a lease lasts
RENEWALS: Final = 3  # and how often its holder renews it


def holder_of(document: Document) -> str:
    """Who holds it, for people; empty: nobody."""
    content = document.read()
    return "" if content is None or content["released"] else f"{content['host']}:{content['pid']}"


def _here() -> dict[str, Any]:
    """This process: `where` is equal for processes that see each other's numbers."""
    space = os.stat("/proc/self/ns/pid").st_ino if os.path.exists("/proc/self/ns/pid") else 0
    boot = Path("/proc/sys/kernel/random/boot_id")
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "where": f"{boot.read_text().strip() if boot.exists() else socket.gethostname()}/{space}",
        "id": secrets.token_hex(8),
    }


def _is_gone(holder: dict[str, Any], here: dict[str, Any]) -> bool:
    if holder.get("where") != here["where"]:
        return False
    try:
        os.kill(int(holder["pid"]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


class Lease:
    """on_lost: called from the renewing thread when another process has taken it, or it ended without a renewal."""

    def __init__(
        self, document: Document, place: str, on_lost: Callable[[], None], lasts_s: float = LASTS_S, note: str = ""
    ) -> None:
        self.held = False
        self._document = document
        self._place = place
        self._on_lost = on_lost
        self._lasts_s = lasts_s
        self._me = {**_here(), "note": note}
        self._beat = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, timeout_s: float) -> None:
        """Waits for up to timeout_s, and at least as long as it takes to know that a holder is gone.

        Raises WalLocked, WalError, OSError.
        """
        deadline = time.monotonic() + max(timeout_s, 1.1 * self._lasts_s)
        seen, since = None, 0.0
        while True:
            content, now = self._document.read(), time.monotonic()
            if content != seen:
                seen, since = content, now
            free = content is None or content["released"] or _is_gone(content, self._me)
            if (free or now - since >= self._lasts_s) and self._document.swap(self._content()):
                break
            if now >= deadline:
                assert content is not None
                raise WalLocked(
                    f"{self._place}: process {content['pid']} on {content['host']} holds the lease of this log "
                    f"({content.get('note') or 'the ingest of a query'}) and renews it.  Stop that one; {TWO_READERS}"
                )
            time.sleep(self._lasts_s / LOOKS)
        self.held = True
        self._thread = threading.Thread(target=self._renew, args=(now,), name=f"lease {self._place}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        self._over.set()
        if self._thread is not None:
            waits.LOG_WRITTEN(self._thread).join()
            self._thread = None
        if self.held:
            self.held = False
            with contextlib.suppress(WalError, OSError):
                self._document.swap(self._content(released=True))

    def _content(self, *, released: bool = False) -> dict[str, Any]:
        self._beat += 1
        return {**self._me, "beat": self._beat, "released": released, "at": round(time.time(), 3)}

    def _renew(self, renewed: float) -> None:
        content: dict[str, Any] | None = None
        pause = self._lasts_s / RENEWALS
        while not waits.PAUSE(self._over).wait(pause):
            began = time.monotonic()
            # the same again after a failure, so that one that arrived without an answer is known as ours
            content = content or self._content()
            try:
                kept = self._document.swap(content)
            except (WalError, OSError):  # nobody follows before the lease is over
                kept = time.monotonic() - renewed < self._lasts_s
                pause = self._lasts_s / LOOKS
            else:
                renewed, pause, content = began, self._lasts_s / RENEWALS, None
            if not kept:
                self.held = False
                self._on_lost()
                return
