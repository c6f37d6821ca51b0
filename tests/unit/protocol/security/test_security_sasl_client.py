"""The client's end of SASL exchanges, against a server written from the RFCs."""

from __future__ import annotations

import base64

import pytest

from barnabas.core.config import ConfigError
from barnabas.core.errors import KafkaError
from barnabas.protocol.security.config import SaslConfig
from barnabas.protocol.security.sasl_client import NONCE_BYTES, sasl_client

NONCE = bytes(range(NONCE_BYTES))


def test_plain() -> None:
    client = sasl_client(SaslConfig("PLAIN", "u", "p"), NONCE)
    assert client.first() == b"\0u\0p"
    assert client.done


def test_scram_sha_256_proves_and_verifies() -> None:
    """The client follows RFC 5802, and rejects a wrong server signature."""
    import hashlib
    import hmac

    def mac(key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, "sha256").digest()

    client = sasl_client(SaslConfig("SCRAM-SHA-256", "us,er=", "pencil"), NONCE)
    first = client.first().decode()
    assert first.startswith("n,,n=us=2Cer=3D,r=")
    bare = first[3:]
    nonce = bare.split("r=", 1)[1] + "server"
    salt = b"salt"
    challenge = f"r={nonce},s={base64.b64encode(salt).decode()},i=4096"
    final = client.next(challenge.encode()).decode()
    without_proof, _, proof = final.rpartition(",p=")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    signed = ",".join((bare, challenge, without_proof)).encode()
    stored_key = hashlib.sha256(mac(salted, b"Client Key")).digest()
    signature = mac(stored_key, signed)
    client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.sha256(client_key).digest() == stored_key
    assert client.done
    client.verify(b"v=" + base64.b64encode(mac(mac(salted, b"Server Key"), signed)))
    with pytest.raises(KafkaError, match="could not prove"):
        client.verify(b"v=" + base64.b64encode(b"x" * 32))


@pytest.mark.parametrize("challenge", [b"r=other,s=c2FsdA==,i=4096", b"", b"r=,s=,i=1", b"e=other-error"])
def test_scram_challenges_of_another_exchange_are_rejected(challenge: bytes) -> None:
    client = sasl_client(SaslConfig("SCRAM-SHA-512", "u", "p"), NONCE)
    client.first()
    with pytest.raises(KafkaError, match="SCRAM exchange"):
        client.next(challenge)


def test_missing_credentials_and_unknown_mechanisms() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.username"):
        sasl_client(SaslConfig("PLAIN", None, None), NONCE)
    with pytest.raises(ConfigError, match="SCRAM-SHA-512"):
        sasl_client(SaslConfig("NTLM", "u", "p"), NONCE)
