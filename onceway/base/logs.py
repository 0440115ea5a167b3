"""Log lines: time, level, router, an event name that stays the same, a text for people, and fields.

    log = logger("router", router="a")
    log.info("session_up", "session with router {peer} is up", peer="b", incarnation=f"{incarnation:016x}")

    2026-11-22T21:09:17.204Z info    [a] session with router b is up  event=session_up incarnation=17c62ba0d99e0f31
    {"time": "2026-11-22T21:09:17.204Z", "level": "info", "router": "a", "event": "session_up", "text": ...}

It stands on Python's `logging`: events go to the logger `onceway`, and lines of other libraries appear as the event
`library`. `configure` decides what is written and where. Writing never raises: lines that cannot be written (a full
disk, a closed pipe) are counted, and the count is logged when writing works again.

docs/operating/logs.md has the table of events; a test compares it with the calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import select
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from router.json_text import write_json

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
CLIENT_FIELDS: Final = ("container", "user", "client", "link", "address")
"""The fields that a client filter may name."""
LIMITED: Final = frozenset(
    (
        "client_connected",
        "client_closed",
        "client_lost",
        "client_left",
        "client_disconnected",
        "client_refused",
        "client_too_slow",
        "link_attached",
        "link_detached",
        "link_ended",
        "link_refused",
        "messages_rejected",
        "neighbour_refused",
        "trunk_left",
        "tls_failed",
        "turn_long",
        "websocket_failed",
        "settled_dropped",
        "subscription_expired",
        "subscription_broken",
        "library",
    )
)
"""Events that a stranger can cause as often as he likes."""
BURST: Final = 50  # lines of one limited event that are written at once; then
RATE: Final = 5.0  # lines a second
TELL_AFTER_S: Final = 5.0  # how long suppressed lines are counted before the count is logged
MOST_CHARACTERS: Final = 400  # of one field
LATEST: Final = 50  # lines that a process keeps, of those that strangers cannot cause
MOST_BYTES: Final = 4000  # of one line without a traceback: a pipe takes such a line whole, or not at all
_ROOT: Final = "onceway"
_PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3}  # of syslog
_LEVEL: Final = re.compile(
    rf"(?:\S{{24}} ({'|'.join(LEVELS)}) |\{{\"time\": \"\S{{24}}\", \"level\": \"({'|'.join(LEVELS)})\")"
)


@dataclass(frozen=True, slots=True)
class ClientFilter:
    """The level for events whose field matches the pattern (of `fnmatch`), in place of the general level."""

    field: str
    pattern: str
    level: str

    @classmethod
    def parse(cls, text: str) -> ClientFilter:
        """From FIELD=PATTERN:LEVEL, as `container=sensor-*:debug`. ValueError says what is wrong with it."""
        field, equals, rest = text.partition("=")
        pattern, colon, level = rest.rpartition(":")
        if not (equals and colon and pattern):
            raise ValueError(f'"{text}" is not FIELD=PATTERN:LEVEL; write, for example, container=sensor-*:debug')
        if field not in CLIENT_FIELDS:
            raise ValueError(f'no field "{field}" to choose clients by; fields are {", ".join(CLIENT_FIELDS)}')
        if level not in LEVELS:
            raise ValueError(f'no level "{level}"; levels are {", ".join(LEVELS)}')
        return cls(field, pattern, level)

    def __str__(self) -> str:
        return f"{self.field}={self.pattern}:{self.level}"


@dataclass(frozen=True, slots=True)
class Options:
    """What is logged, how, and where to; file None: stderr."""

    json: bool = False
    level: str = "info"
    clients: tuple[ClientFilter, ...] = ()
    file: Path | None = None

    def arguments(self) -> list[str]:
        """The command-line options for a router whose lines the caller reads: the same, without the file."""
        argv = ["--log-format", "json" if self.json else "text", "--log-level", self.level]
        for client in self.clients:
            argv += ["--log-client", str(client)]
        return argv


class Log:
    """One part's log; the fields given here are in all its lines."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: Mapping[str, object]) -> None:
        self._logger = logger
        self._fields = fields

    def debug(self, event: str, text: str, /, **fields: object) -> None:
        self._log(logging.DEBUG, event, text, fields)

    def info(self, event: str, text: str, /, **fields: object) -> None:
        self._log(logging.INFO, event, text, fields)

    def warning(self, event: str, text: str, /, **fields: object) -> None:
        self._log(logging.WARNING, event, text, fields)

    def error(self, event: str, text: str, /, exc: BaseException | None = None, **fields: object) -> None:
        self._log(logging.ERROR, event, text, fields, exc)

    def _log(
        self, level: int, event: str, text: str, fields: dict[str, object], exc: BaseException | None = None
    ) -> None:
        if self._logger.isEnabledFor(level):
            message = Message(event, text, {**self._fields, **fields})
            self._logger.log(level, message, exc_info=exc)


class Message:
    """What is logged; as a string it is what people read, for handlers that are not ours."""

    __slots__ = ("event", "fields", "text")

    def __init__(self, event: str, text: str, fields: Mapping[str, object]) -> None:
        self.event = event
        self.text = text
        self.fields = fields

    def sentence(self) -> str:
        """The text with its fields."""
        return printable(self.text.format_map({name: _shown(value) for name, value in self.fields.items()}))

    def __str__(self) -> str:
        router = self.fields.get("router")
        return self.sentence() if router is None else f"[{router}] {self.sentence()}"


def logger(part: str, **fields: object) -> Log:
    """The log of one part of the program."""
    return Log(logging.getLogger(f"{_ROOT}.{part}"), fields)


# --- where lines go


Write = Callable[[str], None]
"""Writes one line, given without its newline. OSError if it cannot be written."""


def write_stderr(line: str) -> None:
    """Past Python's buffer, which would keep what could not be written and fail again at the end."""
    _write(2, for_journal(line) if _stderr_is_the_journal() else line)


def for_journal(line: str, level: str = "info") -> str:
    """The line with its level as journald reads it (sd-daemon(3)): else all would have the same priority. `level` is
    that of a line which does not say it."""
    found = _LEVEL.match(line)
    priority = _PRIORITIES[level if found is None else found[1] or found[2]]
    return "\n".join(f"<{priority}>{each}" for each in line.split("\n"))


def as_read(text: str, level: str) -> str:
    """A text that no log has made, such as what ends a command, as it is written to stderr."""
    return for_journal(text, level) if _stderr_is_the_journal() else text


def _stderr_is_the_journal() -> bool:
    """systemd says which stream it reads for the journal (systemd.exec(5)); a pipe to a supervisor is another one."""
    stream = os.environ.get("JOURNAL_STREAM")
    if stream is None:
        return False
    status = os.fstat(2)
    return stream == f"{status.st_dev}:{status.st_ino}"


def _write(fd: int, line: str) -> None:
    """Raises BlockingIOError where the reader of a pipe does not keep up: the line is lost rather than the router
    blocked. A line that was written in part gets its end before the next one."""
    data = line.encode(errors="replace") + b"\n"
    if fd in _torn:
        data = b"\n" + data
    whole = len(data)
    try:
        while data:
            if not select.select((), (fd,), (), 0)[1]:  # when it is ready, a pipe takes PIPE_BUF without waiting
                raise BlockingIOError(errno.EAGAIN, "the reader of the log does not keep up")
            data = data[os.write(fd, data[: select.PIPE_BUF]) :]
    finally:
        if data and len(data) < whole:
            _torn.add(fd)
        elif not data:
            _torn.discard(fd)


_torn: Final[set[int]] = set()  # file descriptors whose last line was written in part


class LogFile:
    """Appends lines to a file, which may be moved away or removed: the next line goes to a new one."""

    def __init__(self, path: Path) -> None:
        """OSError if it cannot be opened."""
        self._path = path
        self._fd = -1
        self._identity = (0, 0)
        self.reopen()

    def reopen(self) -> None:
        self.close()
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._identity = _identity(os.fstat(self._fd))

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            _torn.discard(fd)
            os.close(fd)

    def __call__(self, line: str) -> None:
        if self._fd < 0 or not self._in_place():
            self.reopen()
        _write(self._fd, line)

    def _in_place(self) -> bool:
        try:
            return _identity(os.stat(self._path)) == self._identity
        except FileNotFoundError:
            return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


# --- from records to lines


class Handler(logging.Handler):
    """Chooses records, makes lines of them and writes these."""

    def __init__(self, options: Options, write: Write, fallback: Write | None, clock: Callable[[], float]) -> None:
        """fallback: where to tell, once, that nothing can be written."""
        super().__init__()
        self.options = options
        self.write = write
        self._fallback = fallback
        self._general = LEVELS[options.level]
        self._lost = 0  # lines that could not be written since the last one that could
        self._limiter = _Limiter(clock)
        self._telling: asyncio.TimerHandle | None = None
        self.latest: deque[tuple[float, str, str, str]] = deque(maxlen=LATEST)  # time, level, event, sentence

    def emit(self, record: logging.LogRecord) -> None:
        message = record.msg
        if not isinstance(message, Message):
            message = Message("library", "{message}", {"message": _message(record), "logger": record.name})
        chosen = self._filter_for(message.fields)
        level = LEVELS[chosen.level] if chosen is not None else self._general
        if record.levelno < level:
            return
        if chosen is None and message.event in LIMITED and not self._limiter.admits(message.event):
            self._tell_later()
            return
        if message.event not in LIMITED:
            told = message.sentence()[:MOST_CHARACTERS]
            self.latest.append((record.created, _level(record.levelno), message.event, told))
        self.put(self._line(record.levelno, message, record.created, _trace(record)))

    def put(self, line: str) -> None:
        """Writes a finished line, or counts it as lost."""
        try:
            if self._lost:
                text = "{count} log lines before this one could not be written"
                self.write(self._line(logging.WARNING, Message("log_lines_lost", text, {"count": self._lost})))
            self._lost = 0
            self.write(line)
        except (OSError, ValueError) as error:
            first = not self._lost
            self._lost += 1
            if first and self._fallback is not None:
                text = "the log cannot be written: {reason}; the router continues without it and tries again"
                told = self._line(logging.ERROR, Message("log_failed", text, {"reason": str(error)}))
                with contextlib.suppress(OSError, ValueError):
                    self._fallback(told)

    def tell_suppressed(self) -> None:
        """Logs how many lines the limits have kept back."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        for event, count in self._limiter.take_suppressed():
            text = "{count} more lines of {suppressed} were not written: there were too many"
            self.put(self._line(logging.WARNING, Message("suppressed", text, {"count": count, "suppressed": event})))

    def close(self) -> None:
        """Ends it; Python does this with the process, too."""
        if self in _handlers:
            _handlers.remove(self)
            logging.getLogger().removeHandler(self)
            self.tell_suppressed()
            if isinstance(self.write, LogFile):
                self.write.close()
        super().close()

    def _tell_later(self) -> None:
        if self._telling is None:
            with contextlib.suppress(RuntimeError):  # no loop: it is told with `close`
                self._telling = asyncio.get_running_loop().call_later(TELL_AFTER_S, self.tell_suppressed)

    def _filter_for(self, fields: Mapping[str, object]) -> ClientFilter | None:
        for client in self.options.clients:
            value = fields.get(client.field)
            if value is not None and fnmatchcase(str(value), client.pattern):
                return client
        return None

    def _line(self, level: int, message: Message, when: float | None = None, trace: str = "") -> str:
        make = json_line if self.options.json else text_line
        return make(level, message, time.time() if when is None else when, trace)


def text_line(level: int, message: Message, when: float, trace: str = "") -> str:
    tail = [f"event={message.event}"]
    for name, value in message.fields.items():
        if name != "router" and f"{{{name}}}" not in message.text:
            tail.append(f"{name}={_quoted(_shown(value))}")
    line = f"{_time(when)} {_level(level):7} {message}  {' '.join(tail)}"[:MOST_BYTES]
    return f"{line}\n{trace}" if trace else line


def json_line(level: int, message: Message, when: float, trace: str = "") -> str:
    document: dict[str, object] = {"time": _time(when), "level": _level(level)}
    if "router" in message.fields:
        document["router"] = message.fields["router"]
    document["event"] = message.event
    document["text"] = message.sentence()[:MOST_CHARACTERS]
    for name, value in message.fields.items():
        plain = value is None or isinstance(value, (bool, int, float))
        document.setdefault(name, value if plain else _shown(value))
    if trace:
        document["traceback"] = trace
    return write_json(document)


def is_line(text: str) -> bool:
    """Whether this was made by a router's log, in either format."""
    return text.startswith('{"time": "') or (text[4:5] == "-" and text[10:11] == "T" and text[23:24] == "Z")


def printable(text: str) -> str:
    """The text with control characters escaped: what strangers send must not look like lines of ours."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value))
    text = str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def _quoted(text: str) -> str:
    return text if text and text.isprintable() and not set(text) & set(' "=\\') else write_json(text)


def _time(when: float) -> str:
    milliseconds = int(when * 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(milliseconds // 1000))}.{milliseconds % 1000:03}Z"


def _level(number: int) -> str:
    return logging.getLevelName(number).lower()


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):  # its arguments do not fit its text
        return str(record.msg)


def _trace(record: logging.LogRecord) -> str:
    error = record.exc_info[1] if record.exc_info else None
    return "" if error is None else "".join(traceback.format_exception(error)).rstrip()


class _Limiter:
    """A token bucket for each event."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # event -> tokens, when they were counted
        self._suppressed: dict[str, int] = {}

    def admits(self, event: str) -> bool:
        now = self._clock()
        tokens, since = self._buckets.get(event, (float(BURST), now))
        tokens = min(float(BURST), tokens + (now - since) * RATE)
        if tokens < 1:
            self._buckets[event] = (tokens, now)
            self._suppressed[event] = self._suppressed.get(event, 0) + 1
            return False
        self._buckets[event] = (tokens - 1, now)
        return True

    def take_suppressed(self) -> list[tuple[str, int]]:
        suppressed, self._suppressed = self._suppressed, {}
        return list(suppressed.items())


# --- the process's log

_handlers: list[Handler] = []  # the one of this process, once it is configured


def latest() -> list[tuple[float, str, str, str]]:
    """Time (in seconds of the epoch), level, event and sentence of this process's last lines."""
    return [line for handler in _handlers for line in handler.latest]


def configure(options: Options, write: Write = write_stderr) -> Handler:
    """Sends this process's log to options.file, or to `write`; in place of what was configured before.
    Raises OSError if the file cannot be opened."""
    handler = Handler(
        options,
        write if options.file is None else LogFile(options.file),
        None if options.file is None else write,
        time.monotonic,
    )
    root = logging.getLogger()
    for old in list(_handlers):
        old.close()
    _handlers.append(handler)
    root.addHandler(handler)
    levels = [options.level, *(client.level for client in options.clients)]
    logging.getLogger(_ROOT).setLevel(min(LEVELS[level] for level in levels))
    return handler


def reopen() -> None:
    """Opens the log file again, as after SIGHUP: it may have been moved."""
    for handler in _handlers:
        if isinstance(handler.write, LogFile):
            with contextlib.suppress(OSError):  # the next line tries again, and tells
                handler.write.reopen()


def relay(router: str, line: str) -> None:
    """Writes what a router of ours has written: lines of its log as they are, anything else as `router_output`."""
    if is_line(line) and _handlers:
        _handlers[0].put(line)
    else:
        logger("supervisor").warning("router_output", "{line}", router=router, line=line)


def keep_standard_streams() -> None:
    """Opens /dev/null for each of stdin, stdout and stderr that is closed: else a socket would get its number, and our
    lines."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            opened: Any = os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if fd == 0 else "w")
            setattr(sys, name, opened)
