"""Shell: the connections of one client: a `ConnectionPool` with the client's settings and exceptions."""

from __future__ import annotations

import barnabas
from barnabas.client.errors import BrokerUnreachableError, RequestTimeoutError, TlsError, UnsupportedApiError
from barnabas.client.options import ClusterConfig
from barnabas.core.errors import KafkaError
from barnabas.core.rng import Rng
from barnabas.protocol.transport.connection_config import ConnectionConfig, ConnectionErrors, Destination
from barnabas.protocol.transport.connection_pool import ConnectionPool
from barnabas.protocol.transport.outgoing_connection import ConnectionOpener


class ClientErrors(ConnectionErrors):
    """Makes the exceptions of `client.errors` from the failures of a `ConnectionPool`."""

    def __init__(self, bootstrap_servers: tuple[tuple[str, int], ...]) -> None:
        self._bootstrap_servers = bootstrap_servers

    def unreachable(self, to: Destination, message: str, cause: BaseException | None) -> KafkaError:
        return BrokerUnreachableError(message + ("" if cause is None else self._advertised_hint(to)))

    def connect_timed_out(self, to: Destination, message: str) -> KafkaError:
        return BrokerUnreachableError(message + self._advertised_hint(to))

    def lost(self, message: str) -> KafkaError:
        return BrokerUnreachableError(message)

    def timed_out(self, message: str) -> KafkaError:
        return RequestTimeoutError(message)

    def unsupported(self, message: str) -> KafkaError:
        return UnsupportedApiError(message)

    def untrusted(self, message: str) -> KafkaError:
        return TlsError(message)

    def _advertised_hint(self, to: Destination) -> str:
        """A sentence for the error message about a wrong `advertised.listeners`, the most common mistake with Kafka; ""
        if the broker's address is one of bootstrap.servers."""
        if to.broker_id < 0 or (to.host, to.port) in self._bootstrap_servers:
            return ""
        return (
            " That address is what the broker advertises (advertised.listeners), and it differs from bootstrap.servers:"
            f" the broker must advertise a name and port that this machine can reach; {to.host}:{to.port} is none."
        )


def open_pool(options: ClusterConfig, rng: Rng, opener: ConnectionOpener) -> ConnectionPool:
    """The pool of a client. A connection is opened when a request first needs it."""
    config = ConnectionConfig(
        client_id=options.client_id,
        client_software_name="barnabas",
        client_software_version=barnabas.__version__.replace("+", "-"),
        security=options.security,
        socket_connection_setup_timeout_ms=options.connect_timeout_ms,
        socket_connection_setup_timeout_max_ms=options.connect_timeout_max_ms,
        reconnect_backoff=options.reconnect_backoff,
        request_timeout_ms=options.request_timeout_ms,
        connections_max_idle_ms=options.connections_max_idle_ms,
        send_buffer_bytes=options.send_buffer_bytes,
        receive_buffer_bytes=options.receive_buffer_bytes,
    )
    return ConnectionPool(config, ClientErrors(options.bootstrap_servers), rng, opener)
