"""How source and sink come to the network: what TLS asks for and shows, and who they are.

Files name secrets: options are shown on Spark's pages and in its logs.  Spark starts Python processes all the time that
only look at the options, so the client is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from onceway.errors import UsageError

if TYPE_CHECKING:
    from onceway.client.credentials import Credentials


@dataclass(frozen=True, slots=True)
class Access:
    """The options as they are given; paths are absolute."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    user: str | None = None
    password_file: str | None = None
    token_file: str | None = None
    mechanism: str | None = None

    def arguments(self) -> dict[str, Any]:
        """`tls` and `credentials` of `onceway.connect`, the files read now. UsageError if one cannot be used."""
        from onceway.access.contexts import tls_context

        given = self.ca or self.certificate or self.key
        return {
            "tls": tls_context(self.ca, self.certificate, self.key) if given else None,
            "credentials": self._credentials(),
        }

    def _credentials(self) -> Credentials | None:
        from onceway.access.secrets import secret_of
        from onceway.client.credentials import Credentials

        token_file = self.token_file
        if token_file is not None:
            if self.user is not None or self.password_file is not None:
                raise UsageError("tokenFile with user or passwordFile: the token says who it is; give one of them")
            return Credentials(mechanism=self.mechanism, token=lambda: secret_of(token_file))
        if (self.user is None) != (self.password_file is None):
            raise UsageError("user without passwordFile, or passwordFile without user: give both")
        if self.user is not None and self.password_file is not None:
            return Credentials(self.user, secret_of(self.password_file), self.mechanism)
        return None if self.mechanism is None else Credentials(mechanism=self.mechanism)


NO_ACCESS: Final = Access()


def take_access(values: dict[str, Any]) -> Access:
    """Takes the fields of Access out of options by field."""
    return Access(**{each.name: values.pop(each.name, None) for each in fields(Access)})


def access_of(config: Mapping[str, Any]) -> Access:
    """Of what `dataclasses.asdict` has made of options."""
    return Access(**config["access"])
