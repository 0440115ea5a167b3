"""How the layers without input and output say what has happened: `onceway.base.logs` in the product."""

from __future__ import annotations

from typing import Final, Protocol


class Log(Protocol):
    """Takes an event's stable name, a text for people with `{field}` in it, and the fields.

    Called when something changes, never for a delivery."""

    def debug(self, event: str, text: str, /, **fields: object) -> None: ...
    def info(self, event: str, text: str, /, **fields: object) -> None: ...
    def warning(self, event: str, text: str, /, **fields: object) -> None: ...
    def error(self, event: str, text: str, /, exc: BaseException | None = None, **fields: object) -> None: ...


class _NoLog:
    def debug(self, event: str, text: str, /, **fields: object) -> None:
        pass

    info = warning = debug

    def error(self, event: str, text: str, /, exc: BaseException | None = None, **fields: object) -> None:
        """Raises it: nobody else would learn of it, as in a test or a simulation."""
        if exc is not None:
            raise exc


NO_LOG: Final[Log] = _NoLog()
