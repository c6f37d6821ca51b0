"""Value: what a server stores of a user's password."""

from __future__ import annotations

from msgspec import Struct


class ScramCredential(Struct, frozen=True):
    """The SCRAM credential of one user: salt, iterations and keys (RFC 5802), never the password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, ...)"
