"""Codec: keys of a token's provider (JSON web keys, RFC 7517), and signatures of tokens (RFC 7518).

The mathematics is that of the package `cryptography`. Only signatures with a key pair are known: `none` and the
algorithms with a shared secret (HS256 and others) are not in the table, so a token cannot choose them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError
from barnabas.protocol.security.oauth.tokens import TokenError, decode_base64url

KEYS_MAX: Final = 256
"""A document with more keys is refused."""
_RSA_BITS_MIN: Final = 2048
_RSA_BITS_MAX: Final = 8192


class KeySetError(BarnabasError):
    """The document of the provider's keys cannot be used."""


class _Algorithm(NamedTuple):
    key_type: str
    hash: hashes.HashAlgorithm
    curve: str = ""
    pss: bool = False


_ALGORITHMS: Final = {
    "RS256": _Algorithm("RSA", hashes.SHA256()),
    "RS384": _Algorithm("RSA", hashes.SHA384()),
    "RS512": _Algorithm("RSA", hashes.SHA512()),
    "PS256": _Algorithm("RSA", hashes.SHA256(), pss=True),
    "PS384": _Algorithm("RSA", hashes.SHA384(), pss=True),
    "PS512": _Algorithm("RSA", hashes.SHA512(), pss=True),
    "ES256": _Algorithm("EC", hashes.SHA256(), "P-256"),
    "ES384": _Algorithm("EC", hashes.SHA384(), "P-384"),
    "ES512": _Algorithm("EC", hashes.SHA512(), "P-521"),
}
ALGORITHMS: Final = tuple(_ALGORITHMS)
_CURVES: Final[Mapping[str, ec.EllipticCurve]] = {
    "P-256": ec.SECP256R1(),
    "P-384": ec.SECP384R1(),
    "P-521": ec.SECP521R1(),
}
_CURVE_NAMES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}


class PublicKey(Struct, frozen=True):
    """One key of a provider."""

    id: str | None
    algorithm: str | None
    """The only algorithm that the key is for; None if the provider names none."""
    key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey

    def fits(self, algorithm: str) -> bool:
        """Whether the key can have made a signature of `algorithm`."""
        wanted = _ALGORITHMS[algorithm]
        if self.algorithm is not None and self.algorithm != algorithm:
            return False
        if isinstance(self.key, rsa.RSAPublicKey):
            return wanted.key_type == "RSA"
        return wanted.key_type == "EC" and _CURVE_NAMES.get(self.key.curve.name) == wanted.curve


class KeySet(NamedTuple):
    """The keys of a provider, and why other keys of the document are left out."""

    keys: tuple[PublicKey, ...]
    left_out: tuple[str, ...]


def decode_keys(document: bytes) -> KeySet:
    """The keys for signatures in a JSON web key set. Raises KeySetError if the document is none, or has no such key."""
    try:
        found = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise KeySetError("the document is not JSON") from None
    rows = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(rows, list) or len(rows) > KEYS_MAX:
        raise KeySetError(f'the document is not a JSON web key set: it needs a list "keys" of at most {KEYS_MAX}')
    keys: list[PublicKey] = []
    left_out: list[str] = []
    for number, row in enumerate(rows):
        try:
            keys.append(_decode_key(row))
        except (TokenError, ValueError, UnsupportedAlgorithm) as error:
            left_out.append(f"key {number}: {error}")
    if not keys:
        raise KeySetError(f"the document has no key for signatures ({'; '.join(left_out) or 'its list is empty'})")
    return KeySet(tuple(keys), tuple(left_out))


def verify(key: PublicKey, algorithm: str, signed: bytes, signature: bytes) -> bool:
    """Whether the owner of `key` has signed `signed`. The key must fit the algorithm, which is one of ALGORITHMS."""
    assert key.fits(algorithm), algorithm
    wanted = _ALGORITHMS[algorithm]
    try:
        if isinstance(key.key, rsa.RSAPublicKey):
            key.key.verify(signature, signed, _padding(wanted), wanted.hash)
        else:
            size = (key.key.curve.key_size + 7) // 8
            if len(signature) != 2 * size:
                return False
            r, s = int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big")
            key.key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(wanted.hash))
    except InvalidSignature:
        return False
    return True


def sign(algorithm: str, private_key: bytes, passphrase: str | None, signed: bytes) -> bytes:
    """The signature of `signed` with a private key in PEM. Raises ConfigError if the key cannot be used."""
    setting = "sasl.oauthbearer.assertion.private.key.file"
    wanted = _ALGORITHMS[algorithm]
    try:
        key = serialization.load_pem_private_key(private_key, passphrase.encode() if passphrase else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"{setting}: the private key cannot be read: {error}. The file must be PEM, and"
            " sasl.oauthbearer.assertion.private.key.passphrase its passphrase."
        ) from error
    if isinstance(key, rsa.RSAPrivateKey) and wanted.key_type == "RSA":
        return key.sign(signed, _padding(wanted), wanted.hash)
    if isinstance(key, ec.EllipticCurvePrivateKey) and _CURVE_NAMES.get(key.curve.name) == wanted.curve:
        size = (key.curve.key_size + 7) // 8
        r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(wanted.hash)))
        return r.to_bytes(size, "big") + s.to_bytes(size, "big")
    raise ConfigError(f"{setting}: the key does not fit sasl.oauthbearer.assertion.algorithm={algorithm}.")


def _padding(algorithm: _Algorithm) -> padding.AsymmetricPadding:
    if algorithm.pss:
        return padding.PSS(padding.MGF1(algorithm.hash), algorithm.hash.digest_size)
    return padding.PKCS1v15()


def _decode_key(row: object) -> PublicKey:
    """Raises TokenError or ValueError with the reason why the key cannot be used."""
    if not isinstance(row, dict):
        raise TokenError("it is not a JSON object")
    use, operations, kid, algorithm = (row.get(name) for name in ("use", "key_ops", "kid", "alg"))
    if use not in (None, "sig"):
        raise TokenError("it is not for signatures (use)")
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        raise TokenError("it is not for checking signatures (key_ops)")
    if not isinstance(kid, str | None):
        raise TokenError("its kid is not a text")
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise TokenError("its algorithm is not supported")
    return PublicKey(kid, algorithm, _decode_numbers(row))


def _decode_numbers(row: Mapping[str, Any]) -> rsa.RSAPublicKey | ec.EllipticCurvePublicKey:
    match row.get("kty"):
        case "RSA":
            modulus, exponent = _number(row, "n"), _number(row, "e")
            if not _RSA_BITS_MIN <= modulus.bit_length() <= _RSA_BITS_MAX or exponent.bit_length() > 64:
                raise TokenError(f"an RSA key must have {_RSA_BITS_MIN} to {_RSA_BITS_MAX} bits")
            return rsa.RSAPublicNumbers(exponent, modulus).public_key()
        case "EC":
            curve = _CURVES.get(str(row.get("crv")))
            if curve is None:
                raise TokenError(f"its curve is not one of {', '.join(_CURVES)}")
            return ec.EllipticCurvePublicNumbers(_number(row, "x"), _number(row, "y"), curve).public_key()
    raise TokenError("its type (kty) is neither RSA nor EC")


def _number(row: Mapping[str, Any], name: str) -> int:
    data = decode_base64url(row.get(name), name)
    if not 0 < len(data) <= 2 * _RSA_BITS_MAX // 8:
        raise TokenError(f"its number {name} is too large, or is missing")
    return int.from_bytes(data, "big")
