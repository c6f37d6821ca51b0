"""Machine: one member of a consumer group of the new protocol (KIP-848): one API, and the broker assigns partitions.

    JOINING ──answer──▶ STABLE ◀──────────────────────────── answer to the acknowledgement
       ▲                  │ assignment                                   │
       │                  ▼                                              │
       │             RECONCILING ──revoke, then assign──▶ ACKNOWLEDGING ─┘
       │
    FENCED, STALE ── after the listener was notified that all partitions are lost

A member sends heartbeats. A response may have an assignment. The member first revokes the partitions that are not in
the assignment, then adds the new ones, and acknowledges by sending the list of its partitions. Only then may other
members own the revoked partitions. A member that the broker has fenced keeps its id, joins again with epoch 0, and owns
no partitions. A member that is not polled leaves (STALE) and joins again at the next poll.

The authorities are Kafka's ConsumerMembershipManager and ConsumerHeartbeatRequestManager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final
from uuid import UUID

from barnabas.client.membership.classic import MembershipConfig, MembershipFailed
from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import TopicIdPartition, TopicPartition
from barnabas.protocol.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member leaves temporarily: its partitions stay assigned until the session times out."""

Owned = dict[TopicIdPartition, TopicPartition]


class Phase(Enum):
    """The phases of a member."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    FENCED = "fenced"
    STALE = "stale"
    FATAL = "fatal"


_MEMBER: Final = (Phase.RECONCILING, Phase.ACKNOWLEDGING, Phase.STABLE)
_SILENT: Final = (Phase.UNSUBSCRIBED, Phase.FENCED, Phase.STALE, Phase.FATAL)
"""The phases without heartbeats."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The coordinator is not ready: retry after a back-off. `find_coordinator`: find the coordinator again first."""

    find_coordinator: bool = False


@dataclass(frozen=True, slots=True)
class PartitionsLost:
    """The member was fenced: all its partitions are lost. Notify the listener, then call `rejoin`."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The changes from the owned to the assigned partitions. `incarnation` shows whether the member was fenced, or
    left, while the rebalance listener ran."""

    target: Owned
    revoked: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    incarnation: int
    completes: frozenset[TopicIdPartition] | None
    """The assignment that is reached when the listener has handled both; None if topics without a name wait."""


Step = Wait | PartitionsLost | MembershipFailed | None


class ConsumerMember:
    """The state machine of one member. `owned` are the partitions that the member owns; a revoked partition stays in
    `owned` until the rebalance listener has handled the revocation."""

    def __init__(self, options: MembershipConfig, member_id: str, *, assignor: str | None = None) -> None:
        self.options = options
        self.member_id = member_id
        self.assignor = assignor
        self.epoch = JOIN_EPOCH
        self.phase = Phase.UNSUBSCRIBED
        self.heartbeat_interval_ms = 0
        self.owned: Owned = {}
        self.topics: tuple[str, ...] = ()
        self.regex: str | None = None
        self._target: frozenset[TopicIdPartition] | None = None
        """The assignment that is not reached yet."""
        self._under_way: Owned = {}
        """The result of the reconciliation in progress. It may take effect at any moment, whatever is assigned
        meanwhile."""
        self._incarnation = 0
        self._told: tuple[tuple[str, ...], str | None] | None = None
        """The subscription that the coordinator has; None if the next heartbeat must have all fields."""
        self._in_flight: tuple[tuple[str, ...], str | None] | None = None

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.owned.values())

    @property
    def is_member(self) -> bool:
        return self.phase in _MEMBER

    @property
    def heartbeats(self) -> bool:
        """Whether this member sends heartbeats now."""
        return self.phase not in _SILENT

    @property
    def is_urgent(self) -> bool:
        """Whether the next heartbeat has changes and must not wait for the interval."""
        if self.phase in (Phase.JOINING, Phase.ACKNOWLEDGING):
            return True
        return self.is_member and (self.topics, self.regex) != self._told

    # -- calls of the user -----------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str], regex: str | None = None) -> None:
        """Set the subscription. The first subscription makes the member join the group."""
        self.topics = tuple(sorted(topics))
        self.regex = regex
        if self.phase is Phase.UNSUBSCRIBED and (self.topics or regex):
            self._begin()

    def rejoin(self) -> None:
        """Join again without partitions, after `PartitionsLost` or `stop_polling`, when the listener was notified."""
        assert self.phase in (Phase.FENCED, Phase.STALE)
        self._begin()

    def _begin(self) -> None:
        self.phase = Phase.JOINING
        self.epoch = JOIN_EPOCH
        self.owned = {}
        self._forget_conversation()

    def _forget_conversation(self) -> None:
        self._incarnation += 1
        self._target = None
        self._under_way = {}
        self._told = None

    def leave(self, *, static_stays: bool = True) -> ConsumerGroupHeartbeatRequest | None:
        """The last heartbeat; None without membership. The member owns no partitions afterwards."""
        was_member = self.is_member or (self.phase is Phase.JOINING and self.epoch == JOIN_EPOCH)
        self.phase = Phase.UNSUBSCRIBED
        self.owned = {}
        self._forget_conversation()
        if not was_member:
            return None
        static = self.options.group_instance_id is not None and static_stays
        self.epoch = STATIC_LEAVE_EPOCH if static else LEAVE_EPOCH
        return self._bare_request()

    def stop_polling(self) -> ConsumerGroupHeartbeatRequest | None:
        """max.poll.interval.ms has passed: leave until the next poll. `owned` is kept until the listener is notified of
        the loss."""
        owned = self.owned
        request = self.leave()
        self.owned = owned
        self.phase = Phase.STALE
        return request

    # -- heartbeats ------------------------------------------------------------------------------------------------

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat: with all fields if the coordinator may lack them, else only with the changed ones."""
        request = self._bare_request()
        everything = self._told is None
        if everything or self._told != (self.topics, self.regex):
            request.subscribed_topic_names = list(self.topics)
            if self.regex is not None or (self._told is not None and self._told[1] is not None):
                request.subscribed_topic_regex = self.regex or ""
        if everything:
            request.rebalance_timeout_ms = self.options.rebalance_timeout_ms
            request.rack_id = self.options.rack
            request.server_assignor = self.assignor
        if everything or self.phase is Phase.ACKNOWLEDGING:
            request.topic_partitions = _by_topic({**self.owned, **self._under_way})
        self._in_flight = (self.topics, self.regex)
        if self.phase is Phase.ACKNOWLEDGING:
            self.phase = Phase.STABLE if self._target is None else Phase.RECONCILING
        return request

    def _bare_request(self) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.options.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.options.group_instance_id,
        )

    def on_unanswered(self) -> None:
        """A heartbeat or its response was lost: the next heartbeat and its response have all fields.

        A pending assignment is dropped, unless its reconciliation has begun: the coordinator may have changed it, and
        may assign its partitions to others when the heartbeat does not list them.
        """
        self._told = None
        self._target = None
        if self.phase is Phase.RECONCILING and not self._under_way:
            self.phase = Phase.STABLE

    def on_heartbeat(self, response: ConsumerGroupHeartbeatResponse) -> Step:
        """Handle a heartbeat response. Returns None if no action is needed."""
        if not self.heartbeats:
            return None  # the response to a heartbeat from before a fencing
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            return self._refused(code, response.error_message or code.message)
        if response.member_id:
            self.member_id = response.member_id
        self._told = self._in_flight
        self.epoch = response.member_epoch
        self.heartbeat_interval_ms = response.heartbeat_interval_ms
        if self.phase is Phase.JOINING:
            self.phase = Phase.STABLE
        if response.assignment is not None:
            self._target = frozenset(
                TopicIdPartition(topic.topic_id, partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            )
            if self._target == self.owned.keys() and self.phase is Phase.STABLE:
                self._target = None
            elif self.phase is Phase.STABLE:
                self.phase = Phase.RECONCILING
        return None

    def _refused(self, code: ErrorCode, message: str) -> Step:
        self.on_unanswered()
        match code:
            case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_NOT_AVAILABLE:
                return Wait(find_coordinator=True)
            case ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.UNKNOWN_MEMBER_ID:
                self.phase = Phase.FENCED
                self._forget_conversation()
                return PartitionsLost()
        if code.retriable:
            return Wait()
        if code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:  # the right may be granted later; the member stays
            self.phase = Phase.FATAL
        return MembershipFailed(KafkaError(code, f"Group {self.options.group_id!r}: {message}{_HINTS.get(code, '')}"))

    # -- reconciling -----------------------------------------------------------------------------------------------

    @property
    def unresolved(self) -> frozenset[UUID]:
        """The topic ids of an assignment that is not reconciled yet. `reconcile` needs the names of these topics."""
        return frozenset() if self._target is None else frozenset(p.topic_id for p in self._target)

    def reconcile(self, names: Mapping[UUID, str]) -> Reconciliation | None:
        """The next step towards the assignment. Topics without a name wait until the metadata has them."""
        if self.phase is not Phase.RECONCILING or self._target is None:
            return None
        target = {
            p: self.owned.get(p) or TopicPartition(names[p.topic_id], p.partition)
            for p in sorted(self._target)
            if p in self.owned or p.topic_id in names
        }
        waiting = len(target) < len(self._target)
        revoked = frozenset(name for p, name in self.owned.items() if p not in target)
        added = frozenset(name for p, name in target.items() if p not in self.owned)
        if waiting and not revoked and not added:
            return None
        self._under_way = target
        return Reconciliation(target, revoked, added, self._incarnation, None if waiting else self._target)

    def is_current(self, reconciliation: Reconciliation) -> bool:
        """Whether the reconciliation is still valid: false if the member was fenced, or left, while its listener
        ran."""
        return reconciliation.incarnation == self._incarnation

    def on_revoked(self, reconciliation: Reconciliation) -> None:
        """The listener has handled the revoked partitions."""
        self.owned = {p: name for p, name in self.owned.items() if p in reconciliation.target}

    def on_assigned(self, reconciliation: Reconciliation) -> None:
        """The new partitions are assigned; the listener is notified now."""
        self.owned = dict(reconciliation.target)
        if self._target == reconciliation.completes:
            self._target = None

    def on_interrupted(self) -> None:
        """The listener has raised an exception: the next poll reconciles what is left. If that is nothing, because the
        assignment was reached or dropped, the next heartbeat says what the member owns."""
        self._under_way = {}
        if self._target is None and self.phase is Phase.RECONCILING:
            self.phase = Phase.ACKNOWLEDGING

    def on_reconciled(self) -> None:
        """The listener has handled the new partitions: the next heartbeat acknowledges the assignment."""
        self._under_way = {}
        self.phase = Phase.ACKNOWLEDGING


_HINTS: Final = {
    ErrorCode.UNRELEASED_INSTANCE_ID: " Another consumer with this group.instance.id is running, or was killed less"
    " than a session time-out ago; every running member needs an id of its own.",
    ErrorCode.FENCED_INSTANCE_ID: " Another consumer with this group.instance.id has taken over.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: " Change group.remote.assignor, or leave it out.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: " See the broker's group.consumer.max.size.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: " It is a group of another kind; choose another group.id.",
    ErrorCode.GROUP_ID_NOT_FOUND: " It is a group of another kind; choose another group.id.",
}


def _by_topic(owned: Owned) -> list[TopicPartitions]:
    topics: dict[UUID, list[int]] = {}
    for partition in sorted(owned):
        topics.setdefault(partition.topic_id, []).append(partition.partition)
    return [TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in topics.items()]
