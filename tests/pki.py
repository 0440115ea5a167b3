"""Certificates of tests, as PEM files: one authority, routers, clients, and what must not be accepted."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = timedelta(days=1)


@dataclass
class Pki:
    """`directory/NAME.pem` has a certificate, those that lead to its authority's, and its key."""

    directory: Path
    authority: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.authority.cert_pem.write_to_path(self.ca)

    @property
    def ca(self) -> Path:
        return self.directory / "ca.pem"

    def certificate(self, name: str, *identities: str, days: float = 365.0) -> Path:
        """For hosts or addresses, or a client's; it ends in so many days."""
        now = datetime.now(UTC)
        made = self.authority.issue_cert(
            *(identities or (f"{name}@example.org",)),
            common_name=name,
            not_before=now - 10 * DAY,
            not_after=now + days * DAY,
        )
        path = self.directory / f"{name}.pem"
        made.private_key_and_cert_chain_pem.write_to_path(path)
        path.chmod(0o600)
        return path

    def revoked(self, *certificates: Path) -> Path:
        """The authority's list."""
        now = datetime.now(UTC)
        authority = x509.load_pem_x509_certificate(self.authority.cert_pem.bytes())
        key = serialization.load_pem_private_key(self.authority.private_key_pem.bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        made = x509.CertificateRevocationListBuilder(
            issuer_name=authority.subject, last_update=now, next_update=now + DAY
        )
        for path in certificates:
            serial = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
            entry = x509.RevokedCertificateBuilder(serial, now).build()
            made = made.add_revoked_certificate(entry)
        path = self.directory / "revoked.pem"
        path.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path
