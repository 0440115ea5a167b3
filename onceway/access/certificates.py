"""What TLS needs to know of a certificate beside what Python's `ssl` tells: X.509 in DER (RFC 5280, 4.1)."""

from __future__ import annotations

import hashlib
import ssl
from calendar import timegm
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import gmtime, strftime, strptime
from typing import Final, NamedTuple

_SIGNATURES: Final = {  # object identifier -> hash function; SHA-256 stands for those that are too weak
    "2a864886f70d010104": "sha256",  # MD5 with RSA
    "2a864886f70d010105": "sha256",  # SHA-1 with RSA
    "2a864886f70d01010b": "sha256",
    "2a864886f70d01010c": "sha384",
    "2a864886f70d01010d": "sha512",
    "2a8648ce3d0401": "sha256",  # SHA-1 with ECDSA
    "2a8648ce3d040302": "sha256",
    "2a8648ce3d040303": "sha384",
    "2a8648ce3d040304": "sha512",
}
_EXPLICIT_0: Final = 0xA0
_EXPLICIT_3: Final = 0xA3
_UTC_TIME: Final = 0x17
_OCTETS: Final = 0x04
_DNS_NAME: Final = 0x82
_SUBJECT_ALT_NAME: Final = bytes.fromhex("551d11")


@dataclass(frozen=True, slots=True)
class Validity:
    """When a certificate may be used, in seconds since 1970."""

    file: Path
    begins: float
    ends: float
    digest: bytes = b""  # of the certificate

    @property
    def content(self) -> Content:
        return Content(self.file, f"valid until {strftime('%Y-%m-%d', gmtime(self.ends))}", self.digest)

    def days_left(self, now: float) -> float:
        """Below zero: it has expired."""
        return (self.ends - now) / 86_400


class Content(NamedTuple):
    """What was read from a file, as far as it says whether that has changed."""

    file: Path
    what: str
    digest: bytes

    @classmethod
    def of(cls, file: Path, what: str) -> Content:
        return cls(file, what, hashlib.sha256(file.read_bytes()).digest())


def first_certificate(file: Path) -> bytes:
    """The first certificate of a PEM file, in DER: the one that is shown."""
    text, end = file.read_text(errors="replace"), "-----END CERTIFICATE-----"
    start = text.index("-----BEGIN CERTIFICATE-----")
    return ssl.PEM_cert_to_DER_cert(text[start : text.index(end, start) + len(end)])


def end_point(certificate: bytes) -> bytes | None:
    """tls-server-end-point of a certificate in DER (RFC 5929, 4.1): its hash, with the function that signed it. None
    where that is not defined, as for Ed25519."""
    _, start, _ = _der(certificate, 0)
    _, _, behind_body = _der(certificate, start)
    _, start, _ = _der(certificate, behind_body)
    _, start, stop = _der(certificate, start)
    name = _SIGNATURES.get(certificate[start:stop].hex())
    return hashlib.new(name, certificate).digest() if name is not None else None


def validity(file: Path) -> Validity:
    """Of the certificate that is shown. `ssl` tells it of the other side's certificates only."""
    certificate = first_certificate(file)
    _, start, _ = _der(certificate, 0)
    _, at, _ = _der(certificate, start)
    tag, _, stop = _der(certificate, at)
    if tag == _EXPLICIT_0:  # version
        at = stop
    for _ in ("serialNumber", "signature", "issuer"):
        _, _, at = _der(certificate, at)
    _, start, _ = _der(certificate, at)
    begins, start = _time(certificate, start)
    ends, _ = _time(certificate, start)
    return Validity(file, begins, ends, hashlib.sha256(certificate).digest())


def dns_names(certificate: bytes) -> frozenset[str]:
    """The hosts that a certificate in DER is for, in small letters (RFC 5280, 4.2.1.6)."""
    _, start, _ = _der(certificate, 0)
    _, start, stop = _der(certificate, start)
    for tag, low, _ in _within(certificate, start, stop):
        if tag == _EXPLICIT_3:  # extensions
            _, low, high = _der(certificate, low)
            for _, begin, end in _within(certificate, low, high):
                (_, at, behind), *rest = _within(certificate, begin, end)
                if certificate[at:behind] == _SUBJECT_ALT_NAME:
                    assert rest[-1][0] == _OCTETS
                    _, at, behind = _der(certificate, rest[-1][1])
                    found = [certificate[a:b] for tag, a, b in _within(certificate, at, behind) if tag == _DNS_NAME]
                    return frozenset(name.decode("ascii", "replace").lower() for name in found)
    return frozenset()


def _within(data: bytes, at: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Tag, start and end of each value that is there."""
    while at < stop:
        tag, start, at = _der(data, at)
        yield tag, start, at


def _time(data: bytes, at: int) -> tuple[float, int]:
    """A time, and where it ends. RFC 5280, 4.1.2.5: UTCTime until 2049, both forms in UTC with seconds."""
    tag, start, stop = _der(data, at)
    text = data[start:stop].decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    return timegm(strptime(text, "%Y%m%d%H%M%SZ")), stop


def _der(data: bytes, at: int) -> tuple[int, int, int]:
    """Tag, start and end of the value at this place."""
    tag, size, at = data[at], data[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(data[at : at + count], "big"), at + count
    return tag, at, at + size
