"""The client's end of SASL exchanges, against a server written from the RFCs."""

from __future__ import annotations

import base64

import pytest

from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
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


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        ("r=other,s=c2FsdA==,i=4096", "does not extend the client's nonce"),
        ("r={nonce},s=c2FsdA==,i=4096", "does not extend the client's nonce"),
        ("r={nonce}server,s=,i=4096", "has no salt"),
        ("", "does not extend the client's nonce"),
        ("e=other-error", "does not extend the client's nonce"),
        ("r={nonce}server,s=c2FsdA==,i=4095", "demands 4095 iterations"),
        ("r={nonce}server,s=c2FsdA==,i=1000001", "demands 1000001 iterations"),
        ("r={nonce}server,s=c2FsdA==,i=99999999999", "demands 99999999999 iterations"),
        ("r={nonce}server,s=c2FsdA==,i=-5000", "demands -5000 iterations"),
        ("r={nonce}server,s=c2FsdA==", "demands no iterations"),
    ],
)
def test_no_proof_is_computed_for_a_challenge_that_weakens_the_exchange(challenge: str, reason: str) -> None:
    """Another exchange's nonce, one that the server has not extended, and iteration counts out of bounds."""
    client = sasl_client(SaslConfig("SCRAM-SHA-512", "u", "p"), NONCE)
    nonce = client.first().decode().rpartition("r=")[2]
    with pytest.raises(KafkaError, match=f"SCRAM exchange: .*{reason}") as caught:
        client.next(challenge.format(nonce=nonce).encode())
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not client.done


def test_many_iterations_are_not_computed_on_the_event_loop() -> None:
    client = sasl_client(SaslConfig("SCRAM-SHA-512", "u", "p"), NONCE)
    nonce = client.first().decode().rpartition("r=")[2]
    assert not client.is_long(f"r={nonce}server,s=c2FsdA==,i=16384".encode())
    assert client.is_long(f"r={nonce}server,s=c2FsdA==,i=16385".encode())


def test_missing_credentials_and_unknown_mechanisms() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.username"):
        sasl_client(SaslConfig("PLAIN", None, None), NONCE)
    with pytest.raises(ConfigError, match="SCRAM-SHA-512"):
        sasl_client(SaslConfig("NTLM", "u", "p"), NONCE)
