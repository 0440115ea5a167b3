"""TLS of clients, and what listeners share with them: contexts of Python's `ssl`, with errors that name the file.

TLS 1.2 is the least, and 1.3 what two sides that can will use. Nobody is ever asked for a password: keys that are
encrypted are refused.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from onceway.base.private import let_read
from onceway.errors import UsageError


def tls_context(
    ca: str | os.PathLike[str] | None = None,
    certificate: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    *,
    place: str = "ca",
) -> ssl.SSLContext:
    """What a client shows and asks for: the router's certificate must be valid and name the URL's host.

    Args:
        ca: A PEM file of those who may have signed the router's certificate. None: those that the system trusts.
        certificate: A PEM file with the client's own, and those that lead to the CA's behind it. None: none.
        key: A PEM file with the certificate's key. None: it is in the same file.
        place: Where `ca` is named, for errors.

    Raises:
        UsageError: A file cannot be used.
    """
    context = ssl.create_default_context()
    if ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        load_authorities(context, place, Path(ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        load_chain(context, "TLS", Path(certificate), Path(key if key is not None else certificate))
    elif key is not None:
        raise UsageError("a key without a certificate; give both")
    return context


def reason(error: ssl.SSLError) -> str:
    """Why TLS failed, in words, as seen from here."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the other side's certificate is not accepted: {error.verify_message}"
    if error.reason == "WRONG_VERSION_NUMBER":
        return "the other side does not speak TLS on this port"
    told = (error.reason or str(error)).replace("_", " ").lower()
    return f"TLS failed: {told}"


def load_chain(
    context: ssl.SSLContext,
    place: str,
    certificate: Path,
    key: Path,
    *,
    names: tuple[str, str] = (".certificate", ".key"),
) -> None:
    """Loads what is shown. `place` and `names` say where the files are named, for errors.

    Raises:
        UsageError: A file cannot be used.
    """
    _read(f"{place}{names[0]}", certificate, "CERTIFICATE")
    text = _read(f"{place}{names[1]}", key, "PRIVATE KEY")
    if "ENCRYPTED" in text:
        raise UsageError(
            f"{place}{names[1]}: {key} is encrypted; keys are read without a password: openssl pkey decrypts it"
        )
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(
                f"{place}{names[1]}: {key} is not the key of {certificate}; give the two that belong"
            ) from error
        why = error.reason or "one of them is torn, or not in PEM form"
        raise UsageError(f"{place}: {certificate} and {key} cannot be used: {why}") from error


def load_authorities(context: ssl.SSLContext, place: str, path: Path) -> None:
    """Loads who may have signed the other side's certificate, or their revocation lists.

    Raises:
        UsageError: The file cannot be used.
    """
    _read(place, path, "X509 CRL" if place.endswith("revoked") else "CERTIFICATE")
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise UsageError(f"{place}: {path} cannot be used: {error.reason or error}") from error


def _read(place: str, path: Path, what: str) -> str:
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise UsageError(f"{place}: {path} cannot be read: {error.strerror}{let_read(error)}") from error
    if what not in text:
        raise UsageError(f"{place}: {path} holds no {what} in PEM form")
    return text
