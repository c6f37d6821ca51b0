"""What both ends say about a handshake that failed because a certificate has expired."""

from __future__ import annotations

import ssl

from barnabas.client.cluster.connections import ClientErrors
from barnabas.client.errors import TlsError
from barnabas.protocol.transport.connection_config import Destination
from barnabas.protocol.transport.secure_connection import describe_failure
from barnabas.protocol.transport.tls import HAS_EXPIRED, handshake_error

BROKER = Destination("host1", 9092)


def unverified() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = HAS_EXPIRED, "certificate has expired"
    return error


def alert() -> ssl.SSLError:
    error = ssl.SSLError(1, "sslv3 alert certificate expired")
    error.reason = "SSLV3_ALERT_CERTIFICATE_EXPIRED"
    return error


def test_a_client_says_that_the_brokers_certificate_has_expired() -> None:
    error = handshake_error(BROKER, unverified(), ClientErrors(()))
    assert isinstance(error, TlsError)
    assert str(error) == (
        "host1:9092: the broker's certificate, or one of its authorities', has expired. Give the broker a new one: it"
        " loads changed files without a restart."
    )


def test_a_client_says_that_its_own_certificate_has_expired() -> None:
    error = handshake_error(BROKER, alert(), ClientErrors(()))
    assert isinstance(error, TlsError)
    assert str(error) == (
        "host1:9092 refused the TLS handshake, because the certificate of this client has expired. Put a new one into"
        " the file of ssl.keystore.location."
    )


def test_a_listener_says_whose_certificate_has_expired() -> None:
    assert describe_failure(unverified()) == (
        "the client's certificate has expired: the client needs a new one in ssl.keystore.location"
    )
    assert describe_failure(alert()) == (
        "the client refused the handshake: the certificate of this listener has expired (ssl.keystore.location)"
    )
