"""Shell: finds the broker that leads a partition or coordinates a key, and sends requests to that broker."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Final, Protocol

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.hashing import coordinator_partition
from barnabas.core.ids import NO_LEADER, TopicPartition
from barnabas.protocol.wire.schema import Request, Response
from barnabas.server.broker.auto_create import AutoTopicCreation
from barnabas.server.broker.config import HasBrokerConfig
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.broker.handlers.links.port import Links
from barnabas.server.broker.handlers.transactions.port import TransactionsPort
from barnabas.server.coordination.share.service import ShareCoordinator
from barnabas.server.metadata.ports import ImageView
from barnabas.server.peers.peers import PeerSender
from barnabas.server.replication.partitions import Partitions

_UNANSWERED: Final = frozenset({ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT})


class LocalBroker(Protocol):
    """This broker, as the channels use it: its copy of the metadata, and its own partitions and coordinators, which
    are asked without the network. The coordinators are built after the channels, because they use the channels."""

    @property
    def node_id(self) -> int: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def metadata(self) -> ImageView: ...

    @property
    def broker_config(self) -> HasBrokerConfig: ...

    @property
    def controller(self) -> ControllerChannel: ...

    @property
    def topic_creation(self) -> AutoTopicCreation: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def disk(self) -> Executor: ...

    @property
    def transaction_port(self) -> TransactionsPort: ...

    @property
    def share_coordinator(self) -> ShareCoordinator: ...

    @property
    def link_requests(self) -> Links: ...


class PeerRouter:
    """The way to the broker that leads a partition or coordinates a key. All channels between coordinators and
    partition leaders use this object."""

    def __init__(self, peers: PeerSender, local: LocalBroker) -> None:
        self._peers = peers
        self.local: Final = local

    def leader(self, tp: TopicPartition) -> int | None:
        """The id of the broker that leads `tp`; -1 if the partition has no leader, None if the partition is unknown."""
        state = self.local.metadata.image.topics.partition(tp.topic, tp.partition)
        return None if state is None else state.leader

    def coordinator(self, topic: str, key: str) -> int:
        """The id of the broker that leads the partition of `topic` to which `key` hashes.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE if the topic does not exist or the partition has no leader.
        """
        state_topic = self.local.metadata.image.topics.get(topic)
        if state_topic is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} does not exist yet.")
        partition = coordinator_partition(key, len(state_topic.partitions))
        leader = state_topic.partitions[partition].leader
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic}-{partition} has no leader.")
        return leader

    def is_local(self, broker_id: int) -> bool:
        return broker_id == self.local.node_id

    async def send(self, broker_id: int, request: Request, purpose: str) -> Response:
        """Send `request` and return the response.

        Raises KafkaError NETWORK_EXCEPTION if no response came (the broker may have handled the request), and
        UNSUPPORTED_VERSION if the broker does not support the request, which then was not handled.
        """
        timeout_ms = self.local.broker_config.current.request_timeout_ms
        try:
            return await self._peers.send(broker_id, request, timeout_ms=timeout_ms, purpose=purpose)
        except KafkaError as error:
            if error.code in _UNANSWERED:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, error.detail) from error
            raise

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group `partitions` by the id of their leader. Partitions without a leader are left out."""
        found: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            leader = self.leader(tp)
            if leader is not None and leader != NO_LEADER:
                found.setdefault(leader, []).append(tp)
        return found
