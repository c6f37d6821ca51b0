"""Value: what a server stores of a user's password, and the bounds of SCRAM."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

SCRAM_MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The number of each SCRAM mechanism in requests and in metadata records (`ScramMechanism`)."""
PASSWORD_MECHANISMS: Final = ("PLAIN", *SCRAM_MECHANISMS)
"""The mechanisms whose clients have a user name and a password."""
SCRAM_ITERATIONS_MIN: Final = 4096
SCRAM_ITERATIONS_MAX: Final = 16_384
SCRAM_SALT_BYTES: Final = 18
"""The size of a random salt."""


class ScramCredential(Struct, frozen=True):
    """The SCRAM credential of one user: salt, iterations and keys (RFC 5802), never the password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, ...)"
