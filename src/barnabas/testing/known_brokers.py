"""Shell: asks one broker which brokers of the cluster it knows."""

from __future__ import annotations

import socket
from typing import Final

from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataResponse

_VERSION: Final = 1
"""The Metadata version: the oldest in which an empty list of topics requests no topic. Every broker supports it."""
_TIMEOUT_S: Final = 10.0


def known_brokers(address: str) -> set[int] | None:
    """The ids of the brokers in the Metadata response of the broker at `address` (`HOST:PORT`).

    None if the broker closes the connection without an answer, as a listener with TLS or SASL does. Raises OSError if
    the broker does not accept the connection, or does not answer in time.
    """
    host, _, port = address.rpartition(":")
    wire = ClientConnection("barnabas-testing")
    _, parts = wire.send(MetadataRequest(topics=[]), _VERSION)
    with socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_S) as connection:
        connection.sendall(b"".join(bytes(part) for part in parts))
        try:
            while data := connection.recv(65_536):
                for _, response in wire.feed(data):
                    assert isinstance(response, MetadataResponse)
                    return {broker.node_id for broker in response.brokers}
        except ConnectionResetError:
            pass
    return None
