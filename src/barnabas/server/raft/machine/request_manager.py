"""Machine: at most one request in flight to each node, and a backoff after a failure (Kafka's RequestManager)."""

from __future__ import annotations

from msgspec import Struct

from barnabas.server.raft.machine.values import RaftConfig

NO_REQUEST = -1


class _NodeRequest(Struct):
    correlation_id: int = NO_REQUEST
    timeout_at_ms: int = 0
    ready_at_ms: int = 0


class RequestManager:
    """The requests in flight, by node. A response to any other request is ignored."""

    def __init__(self, config: RaftConfig) -> None:
        self._request_timeout_ms = config.controller_quorum_request_timeout_ms
        self._retry_backoff_ms = config.controller_quorum_retry_backoff_ms
        self._nodes: dict[int, _NodeRequest] = {}
        self._next_correlation_id = 0

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        return self.ready_at_ms(node_id) <= now_ms

    def ready_at_ms(self, node_id: int) -> int:
        """The time from which a request may be sent to the node, unless a response arrives earlier."""
        connection = self._nodes.get(node_id)
        if connection is None:
            return 0
        return connection.ready_at_ms if connection.correlation_id == NO_REQUEST else connection.timeout_at_ms

    def has_timed_out(self, node_id: int, now_ms: int) -> bool:
        connection = self._nodes.get(node_id)
        return connection is not None and connection.correlation_id != NO_REQUEST and connection.timeout_at_ms <= now_ms

    def has_any_in_flight(self, now_ms: int) -> bool:
        return any(
            connection.correlation_id != NO_REQUEST and connection.timeout_at_ms > now_ms
            for connection in self._nodes.values()
        )

    def on_sent(self, node_id: int, now_ms: int) -> int:
        """Record that a request is sent, and return its correlation id."""
        self._next_correlation_id += 1
        connection = self._nodes.setdefault(node_id, _NodeRequest())
        connection.correlation_id = self._next_correlation_id
        connection.timeout_at_ms = now_ms + self._request_timeout_ms
        return self._next_correlation_id

    def expects(self, node_id: int, correlation_id: int) -> bool:
        connection = self._nodes.get(node_id)
        return connection is not None and connection.correlation_id == correlation_id

    def on_answered(self, node_id: int, *, now_ms: int, success: bool) -> None:
        connection = self._nodes[node_id]
        connection.correlation_id = NO_REQUEST
        connection.ready_at_ms = now_ms if success else now_ms + self._retry_backoff_ms

    def reset(self) -> None:
        """Forget all requests, because the epoch or the state has changed. Responses to them will be ignored."""
        self._nodes.clear()
