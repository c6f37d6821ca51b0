"""Codec: hashes of passwords in files of users: `scrypt$n$r$p$SALT$KEY` (RFC 7914), with salt and key in base64."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

_N, _R, _P = 1 << 15, 8, 1
_SALT_BYTES: Final = 16
_KEY_BYTES: Final = 32
_MEMORY_MAX: Final = 256 * 1024 * 1024
_SCHEME: Final = "scrypt"


def is_hash(secret: str) -> bool:
    """Whether the secret of a user is a hash, and not the password itself."""
    return secret.startswith(f"{_SCHEME}$")


def hash_password(password: str, salt: bytes) -> str:
    """The hash of a password. `salt` has 16 random bytes. Takes about 0.1 s and 32 MiB."""
    assert len(salt) == _SALT_BYTES
    key = _derive(password, salt, _N, _R, _P)
    return "$".join((_SCHEME, str(_N), str(_R), str(_P), _text(salt), _text(key)))


def check_password(password: str, password_hash: str) -> bool:
    """Whether a password has this hash. As slow as `hash_password`."""
    _, n, r, p, salt, key = password_hash.split("$")
    found = _derive(password, base64.b64decode(salt), int(n), int(r), int(p))
    return hmac.compare_digest(found, base64.b64decode(key))


def check_hash(text: str) -> None:
    """Raises ValueError if the text is not a hash, or one that would need too much memory or time."""
    try:
        scheme, n, r, p, salt, key = text.split("$")
        cost = int(n) * int(r) * 128
        if scheme != _SCHEME or cost > _MEMORY_MAX or int(p) > 16:
            raise ValueError
        if len(base64.b64decode(salt)) < 8 or len(base64.b64decode(key)) != _KEY_BYTES:
            raise ValueError
    except (ValueError, binascii.Error):
        raise ValueError("the hash is not scrypt$n$r$p$SALT$KEY") from None


def _derive(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode(errors="surrogatepass"),
        salt=salt,
        n=n,
        r=r,
        p=p,
        dklen=_KEY_BYTES,
        maxmem=n * r * 128 + 1024 * 1024,
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
