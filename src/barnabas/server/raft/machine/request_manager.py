"""Machine: one request at a time to each node, repeated after a pause (Kafka's RequestManager)."""

from __future__ import annotations

from msgspec import Struct

from barnabas.server.raft.machine.values import RaftConfig

NO_REQUEST = -1


class _NodeRequest(Struct):
    correlation_id: int = NO_REQUEST
    timeout_at_ms: int = 0
    ready_at_ms: int = 0


class RequestManager:
    """A response counts only if it answers the request that is under way."""

    def __init__(self, config: RaftConfig) -> None:
        self._request_timeout_ms = config.controller_quorum_request_timeout_ms
        self._retry_backoff_ms = config.controller_quorum_retry_backoff_ms
        self._nodes: dict[int, _NodeRequest] = {}
        self._next_correlation_id = 0

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        return self.ready_at_ms(node_id) <= now_ms

    def ready_at_ms(self, node_id: int) -> int:
        """When the node may be sent a request, if nothing happens before."""
        connection = self._nodes.get(node_id)
        if connection is None:
            return 0
        return connection.ready_at_ms if connection.correlation_id == NO_REQUEST else connection.timeout_at_ms

    def has_timed_out(self, node_id: int, now_ms: int) -> bool:
        connection = self._nodes.get(node_id)
        return connection is not None and connection.correlation_id != NO_REQUEST and connection.timeout_at_ms <= now_ms

    def any_under_way(self, now_ms: int) -> bool:
        return any(
            connection.correlation_id != NO_REQUEST and connection.timeout_at_ms > now_ms
            for connection in self._nodes.values()
        )

    def on_sent(self, node_id: int, now_ms: int) -> int:
        """Returns the correlation id to send with."""
        self._next_correlation_id += 1
        connection = self._nodes.setdefault(node_id, _NodeRequest())
        connection.correlation_id = self._next_correlation_id
        connection.timeout_at_ms = now_ms + self._request_timeout_ms
        return self._next_correlation_id

    def expects(self, node_id: int, correlation_id: int) -> bool:
        connection = self._nodes.get(node_id)
        return connection is not None and connection.correlation_id == correlation_id

    def on_answered(self, node_id: int, *, now_ms: int, well: bool) -> None:
        connection = self._nodes[node_id]
        connection.correlation_id = NO_REQUEST
        connection.ready_at_ms = now_ms if well else now_ms + self._retry_backoff_ms

    def reset(self) -> None:
        """A new epoch or state: what was asked before does not matter any more."""
        self._nodes.clear()
