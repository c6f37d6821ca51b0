"""Shell: this node's services, the other brokers, and who leads what: what the channels between coordinators share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.hashing import coordinator_partition
from barnabas.core.ids import NO_LEADER, TopicPartition
from barnabas.protocol.wire.schema import Request, Response

if TYPE_CHECKING:
    from barnabas.server.broker.services import Services

_UNANSWERED: Final = frozenset({ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT})


class PeerSender(Protocol):
    """The way to other brokers (`node.peers.Peers`)."""

    async def send(self, broker_id: int, request: Request, *, timeout_ms: int, purpose: str = "") -> Response:
        """Raises KafkaError: BROKER_NOT_AVAILABLE, REQUEST_TIMED_OUT, UNSUPPORTED_VERSION."""
        ...


class NoPeers:
    """For a node that is all of its cluster."""

    async def send(self, broker_id: int, request: Request, *, timeout_ms: int, purpose: str = "") -> Response:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} cannot be reached from here.")


class Neighbours:
    """`services` is set when they are assembled."""

    def __init__(self, peers: PeerSender) -> None:
        self.services: Services | None = None
        self._peers = peers

    def require(self) -> Services:
        assert self.services is not None, "the services are assembled before anything is asked"
        return self.services

    def leader(self, tp: TopicPartition) -> int | None:
        """-1 while nobody leads it; None where there is no such partition."""
        state = self.require().metadata.image.topics.partition(tp.topic, tp.partition)
        return None if state is None else state.leader

    def coordinator(self, topic: str, key: str) -> int:
        """The broker that leads the partition of `topic` that `key` hashes to. Raises KafkaError
        COORDINATOR_NOT_AVAILABLE."""
        state_topic = self.require().metadata.image.topics.get(topic)
        if state_topic is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} does not exist yet.")
        partition = coordinator_partition(key, len(state_topic.partitions))
        leader = state_topic.partitions[partition].leader
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic}-{partition} has no leader.")
        return leader

    def is_here(self, broker_id: int) -> bool:
        return broker_id == self.require().node_id

    async def send(self, broker_id: int, request: Request, purpose: str) -> Response:
        """Raises KafkaError: NETWORK_EXCEPTION (it may have been carried out), UNSUPPORTED_VERSION (it was not)."""
        timeout_ms = self.require().config.request_timeout_ms
        try:
            return await self._peers.send(broker_id, request, timeout_ms=timeout_ms, purpose=purpose)
        except KafkaError as error:
            if error.code in _UNANSWERED:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, error.detail) from error
            raise

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions that have a leader, by its id."""
        found: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            leader = self.leader(tp)
            if leader is not None and leader != NO_LEADER:
                found.setdefault(leader, []).append(tp)
        return found
