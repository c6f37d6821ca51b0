"""Codec: SCRAM credentials as Kafka's tools write them (Kafka's `ScramParser`).

    SCRAM-SHA-256=[name=alice,password=secret]                        --add-scram of kafka-storage
    SCRAM-SHA-512=[name="a b",salt="...",saltedpassword="...",iterations=8192]
    SCRAM-SHA-256=[iterations=8192,password=secret]                   --add-config of kafka-configs, for one user

Values may be in double quotes. `salt` and `saltedpassword` are base64. A value cannot contain a comma.
"""

from __future__ import annotations

import hashlib
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.core.rng import Rng
from barnabas.protocol.security import scram
from barnabas.protocol.security.credentials import (
    SCRAM_ITERATIONS_MAX,
    SCRAM_ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    SCRAM_SALT_BYTES,
    ScramCredential,
)

_KEYS: Final = frozenset({"name", "password", "salt", "saltedpassword", "iterations"})


class ScramArgument(Struct, frozen=True):
    """One credential, with the password, or with the salt and the salted password."""

    mechanism: str
    user: str
    iterations: int
    salt: bytes | None = None
    password: str | None = None
    salted_password: bytes | None = None

    def salted(self, rng: Rng) -> tuple[bytes, bytes]:
        """The salt, which is random unless it is given, and the salted password."""
        salt = self.salt or rng.getrandbits(8 * SCRAM_SALT_BYTES).to_bytes(SCRAM_SALT_BYTES, "big")
        if self.salted_password is not None:
            return salt, self.salted_password
        assert self.password is not None, "checked by parse_scram"
        name = scram.HASHES[self.mechanism]
        return salt, hashlib.pbkdf2_hmac(name, self.password.encode(), salt, self.iterations)

    def credential(self, rng: Rng) -> ScramCredential:
        """What a server stores."""
        salt, salted = self.salted(rng)
        return scram.credential_of(scram.HASHES[self.mechanism], salted, salt, self.iterations)

    def __repr__(self) -> str:
        return f"ScramArgument({self.mechanism}, {self.user!r}, ...)"


def parse_scram(text: str, *, user: str | None = None) -> ScramArgument:
    """Parse `MECHANISM=[...]`. `user` is the name if the text has none. Raises ConfigError without any password."""
    mechanism, _, rest = text.strip().partition("=")
    if mechanism not in SCRAM_MECHANISMS:
        raise ConfigError(f"{mechanism!r} is not a SCRAM mechanism; use {' or '.join(SCRAM_MECHANISMS)}.")
    rest = rest.strip()
    if not rest.startswith("[") or not rest.endswith("]"):
        raise _error(mechanism, "the values must be in square brackets")
    values: dict[str, str] = {}
    for part in rest[1:-1].split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or key not in _KEYS or key in values:
            shown = key if key in _KEYS else "a part"
            raise _error(mechanism, f"{shown} is unknown, repeated, or has no value")
        values[key] = _unquoted(value.strip(), mechanism)
    name = values.get("name", "" if user is None else user)
    if not name or (user is not None and "name" in values):
        raise _error(mechanism, "name is missing" if user is None else "name is not allowed here")
    iterations = values.get("iterations", str(SCRAM_ITERATIONS_MIN))
    if not iterations.isdecimal() or not SCRAM_ITERATIONS_MIN <= int(iterations) <= SCRAM_ITERATIONS_MAX:
        raise _error(mechanism, f"iterations must be from {SCRAM_ITERATIONS_MIN} to {SCRAM_ITERATIONS_MAX}")
    if ("password" in values) is ("saltedpassword" in values):
        raise _error(mechanism, "exactly one of password and saltedpassword is needed")
    if "saltedpassword" in values and "salt" not in values:
        raise _error(mechanism, "saltedpassword needs salt")
    if not values.get("password", "x"):
        raise _error(mechanism, "password is empty")
    try:
        salt = scram.decode_base64(values["salt"]) if "salt" in values else None
        salted = scram.decode_base64(values["saltedpassword"]) if "saltedpassword" in values else None
    except scram.ScramError:
        raise _error(mechanism, "salt and saltedpassword must be base64") from None
    return ScramArgument(mechanism, name, int(iterations), salt, values.get("password"), salted)


def _unquoted(value: str, mechanism: str) -> str:
    if value.startswith('"'):
        if len(value) < 2 or not value.endswith('"'):
            raise _error(mechanism, "a value in double quotes does not end")
        return value[1:-1]
    return value


def _error(mechanism: str, reason: str) -> ConfigError:
    return ConfigError(f"{mechanism}=[...]: {reason}. The form is {mechanism}=[name=alice,password=secret].")
