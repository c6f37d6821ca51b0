"""Planted bugs of clusters. Each one makes the production code wrong in one place, in a way that a programmer might."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.inflation_total import INFLATING, UNCOUNTED_BYTES, InflationTotal
from barnabas.protocol.security import sasl_conversation
from barnabas.protocol.security.credentials import ScramCredential
from barnabas.protocol.security.sasl_conversation import SaslConversation
from barnabas.protocol.security.sasl_server import SaslCredentials, SaslServer
from barnabas.protocol.transport.accepted_connection import AcceptedConnection
from barnabas.protocol.transport.limits import RequestBudget
from barnabas.protocol.transport.turns import Turns
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatResponse
from barnabas.protocol.wire.messages.broker_registration import BrokerRegistrationRequest
from barnabas.server.broker.client_quotas import ClientQuotas
from barnabas.server.coordination.context import CoordinatorContext
from barnabas.server.coordination.runtime import CoordinatorRuntime
from barnabas.server.metadata import session_keeper, snapshot
from barnabas.server.metadata.controller import alter_partition, brokers, controller, partition_change
from barnabas.server.metadata.controller.sessions import BrokerSessions
from barnabas.server.metadata.controller.suspicions import BrokerSuspicions, ProbeOutcome
from barnabas.server.metadata.driver import ControllerDriver
from barnabas.server.metadata.failure_detector import FailureDetector
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.small import ConfigsImage
from barnabas.server.metadata.records.nodes import RegisterBrokerRecord
from barnabas.server.quorum import vote_store
from barnabas.server.raft.machine.progress import EpochProgress
from barnabas.server.raft.machine.values import Voters
from barnabas.server.replication.directories.found_logs import FoundLogs
from barnabas.server.replication.directories.replica_directories import ReplicaDirectories
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.roles import leader as leader_module
from barnabas.server.replication.rules import watermark
from barnabas.server.replication.shares.partition import SharePartition
from barnabas.server.storage import log as log_module
from barnabas.server.storage import recovery
from barnabas.server.storage.cleaner.cleaning import CleaningPass
from barnabas.server.storage.log import Log
from barnabas.server.storage.producers.state import ProducerState
from barnabas.testing.sim import CorrectnessError, CrashError, LivenessError
from barnabas.testing.sim.cluster.fault_context import ClusterFaultMenu
from barnabas.testing.sim.cluster.hostile_clients import COUNTING
from barnabas.testing.sim.cluster.storm import COMPACTING

Patch = pytest.MonkeyPatch
WRONG = (CorrectnessError,)
WRONG_OR_STUCK = (CorrectnessError, LivenessError)
ANY = (CorrectnessError, LivenessError, CrashError)


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, the menu of faults that makes it visible, and the kinds of failure that it may cause."""

    name: str
    plant: Callable[[Patch], None]
    menu: ClusterFaultMenu
    seeds: int
    """The number of seeds within which the bug must be found."""
    caught_by: tuple[type[Exception], ...] = WRONG
    first: int = 0
    """The first seed to run."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Broker settings with which the bug is visible."""
    sasl: bool = False
    """Whether nodes and clients log in."""
    quotas: bool = False
    """Whether the clients have quotas."""
    hostile: bool = False
    """Whether some clients are hostile."""


# -- replication -------------------------------------------------------------------------------------------------------


def _ack_before_isr(patch: Patch) -> None:
    """A produce request with acks=all is acknowledged after the leader's append."""
    real = Partition.try_committed

    def try_committed(self: Partition, offset: int) -> ErrorCode | None:
        if self.leader is None or self.name.topic.startswith("__"):
            return real(self, offset)
        return ErrorCode.NONE

    patch.setattr(Partition, "try_committed", try_committed)


def _min_insync_ignored(patch: Patch) -> None:
    """A leader without in-sync followers accepts, commits and acknowledges records despite min.insync.replicas."""
    patch.setattr("barnabas.server.replication.roles.leader.refuse_append", lambda state, acks, least: ErrorCode.NONE)
    patch.setattr("barnabas.server.replication.rules.watermark.effective_min_insync", lambda replicas, least: 1)
    patch.setattr("barnabas.server.replication.rules.leader.effective_min_insync", lambda replicas, least: 1)


def _truncate_to_watermark(patch: Patch) -> None:
    """A follower of a new leader truncates to its own high watermark, as before KIP-101."""
    real = Partition.next_fetch
    cut: dict[int, int] = {}

    def next_fetch(self: Partition, now_ms: int) -> Any:
        state, log = self.follower, self.log
        if state is not None and log is not None and cut.get(id(self)) != state.leader_epoch:
            cut[id(self)] = state.leader_epoch
            if self.high_watermark < log.log_end_offset:
                log.truncate_to(self.high_watermark, now_ms=now_ms)
        return real(self, now_ms)

    patch.setattr(Partition, "next_fetch", next_fetch)


def _divergence_ignored(patch: Patch) -> None:
    """A leader does not report the diverging epoch, so the follower appends after diverging records."""
    patch.setattr("barnabas.server.replication.reading._diverging", lambda *args: None)


def _cut_off_leader_acknowledges(patch: Patch) -> None:
    """A leader that is cut off answers the waiting clients as if their records were committed."""

    def release_clients(self: Partition) -> None:
        if self.delayed_produces and self.leader is not None:
            self.delayed_produces.complete_clients(ErrorCode.NONE)

    patch.setattr(Partition, "release_clients", release_clients)


def _watermark_of_the_isr_alone(patch: Patch) -> None:
    """A replica that is being added to the ISR does not yet limit the high watermark."""
    real = watermark.high_watermark

    def high_watermark(state: Any, end: int, current: int, **options: Any) -> Any:
        return real(replace(state, proposed_isr=frozenset()), end, current, **{**options, "joining": ()})

    patch.setattr("barnabas.server.replication.roles.leader.high_watermark", high_watermark)


def _watermark_of_the_leader_alone(patch: Patch) -> None:
    """The high watermark is the log end offset of the leader."""
    patch.setattr(
        "barnabas.server.replication.roles.leader.high_watermark",
        lambda state, end, current, **options: max(end, current),
    )


def _any_follower_joins(patch: Patch) -> None:
    """A follower joins the ISR at its first fetch, whatever its lag."""
    patch.setattr("barnabas.server.replication.rules.isr.is_in_sync", lambda state, follower, watermark: True)


def _producers_not_copied(patch: Patch) -> None:
    """Followers append batches without updating the producer state."""
    real = Log.append_as_follower

    def append(self: Log, buf: Any, **options: Any) -> Any:
        prepare = ProducerState.prepare
        ProducerState.prepare = lambda state, *args: prepare(state, (), {}, None)  # type: ignore[method-assign]
        try:
            return real(self, buf, **options)
        finally:
            ProducerState.prepare = prepare  # type: ignore[method-assign]

    patch.setattr(Log, "append_as_follower", append)


def _stable_offset_ahead(patch: Patch) -> None:
    """read_committed consumers read up to the high watermark."""
    patch.setattr(Log, "last_stable_offset", lambda self, high_watermark: high_watermark)


def _leader_counts_unflushed(patch: Patch) -> None:
    """With flush.messages=1 the leader counts its own unflushed records as replicated."""
    patch.setattr(Partition, "flushes_first", property(lambda self: False))
    patch.setattr(leader_module, "FLUSH_EVERY_MESSAGE", -1)  # no topic has this value


def _no_recovery(patch: Patch) -> None:
    """After a crash a log is opened as after a clean shutdown."""
    real = recovery.load
    patch.setattr(log_module, "load", lambda request: real(replace(request, clean=True)))


# -- the controller ----------------------------------------------------------------------------------------------------


def _elect_any_replica(patch: Patch) -> None:
    """The first running replica is elected leader, whether or not it is in the ISR."""
    real = partition_change.elect

    def elect(partition: Any, target: Any, rules: Any, election: Any) -> Any:
        for broker in target.replicas:
            if rules.is_usable(broker):
                return partition_change.Elected(broker)
        return real(partition, target, rules, election)

    patch.setattr(partition_change, "elect", elect)


def _broker_epochs_ignored(patch: Patch) -> None:
    """AlterPartition accepts an ISR with a broker that has restarted since it was in sync, or that is fenced."""
    real = alter_partition._problem

    def problem(image: Any, partition: Any, wanted: Any, sender: int, isr: Any) -> ErrorCode:
        code = real(image, partition, wanted, sender, isr)
        return ErrorCode.NONE if code is ErrorCode.INELIGIBLE_REPLICA else code

    patch.setattr(alter_partition, "_problem", problem)
    patch.setattr("barnabas.server.replication.rules.isr.is_eligible", lambda state, follower, active: True)
    patch.setattr("barnabas.server.replication.roles.leader.is_stale_fetch", lambda epoch, registered: False)


def _old_leaders_not_fenced(patch: Patch) -> None:
    """AlterPartition accepts the ISR of an earlier leader epoch or partition epoch, from any broker."""
    real = alter_partition._problem

    def problem(image: Any, partition: Any, wanted: Any, sender: int, isr: Any) -> ErrorCode:
        code = real(image, partition, wanted, sender, isr)
        fenced = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST)
        return ErrorCode.NONE if code in fenced and partition.leader in isr else code

    patch.setattr(alter_partition, "_problem", problem)


def _deposed_leader_stays(patch: Patch) -> None:
    """A leader ignores the later leader epoch in which another broker leads: it continues to accept writes."""
    real = Partition.apply_image

    def apply_image(self: Partition, image: Any) -> bool:
        if self.is_leader and image.leader != self.context.node_id:
            return False
        return real(self, image)

    patch.setattr(Partition, "apply_image", apply_image)


def _epoch_kept_after_the_fence(patch: Patch) -> None:
    """The next process of a broker that was fenced for its end gets the broker epoch of the process that has ended."""
    real = controller._HANDLED[BrokerRegistrationRequest]

    def decide(image: ClusterImage, request: Any, ctx: Any) -> Any:
        decision = real(image, request, ctx)
        present = image.brokers.get(request.broker_id)
        if present is not None and present.fenced and not decision.response.error_code:
            decision.response.broker_epoch = present.epoch
            for record in decision.records:
                if isinstance(record, RegisterBrokerRecord):
                    record.broker_epoch = present.epoch
        return decision

    patch.setitem(controller._HANDLED, BrokerRegistrationRequest, decide)


def _fenced_for_ever(patch: Patch) -> None:
    """A broker that was fenced is not unfenced by the heartbeats of the same process."""
    real = session_keeper.decide_heartbeat
    unfenced: set[tuple[int, int]] = set()

    def decide(image: ClusterImage, request: Any, ctx: Any) -> Any:
        broker = image.brokers.get(request.broker_id)
        if broker is not None and broker.epoch == request.broker_epoch and not request.want_shut_down:
            if not broker.fenced:
                unfenced.add((broker.broker_id, broker.epoch))
            elif (broker.broker_id, broker.epoch) in unfenced:
                return Decision(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True))
        return real(image, request, ctx)

    patch.setattr(session_keeper, "decide_heartbeat", decide)


def _fence_without_elections(patch: Patch) -> None:
    """The record that fences a broker is written, and its partitions keep their leader."""

    def decide(image: ClusterImage, broker_id: int, ctx: Any) -> Any:
        decision = brokers.decide_fence_broker(image, broker_id, ctx)
        return Decision(None, decision.records[-1:])

    patch.setattr(session_keeper, "decide_fence_broker", decide)


def _unclean_shutdowns_forgotten(patch: Patch) -> None:
    """A broker stays in the ISR and the ELR after an unclean shutdown."""
    patch.setattr("barnabas.server.metadata.controller.brokers.records_without_broker", lambda *args, **options: [])


def _sessions_do_not_expire(patch: Patch) -> None:
    """Broker sessions never expire."""
    patch.setattr(BrokerSessions, "expired", lambda self, now_ms: [])
    patch.setattr(BrokerSessions, "next_deadline_ms", lambda self: None)


def _lost_connection_fences(patch: Patch) -> None:
    """The controller fences a broker as soon as the connection of its heartbeats is lost, without a refusal."""

    def on_connection_lost(self: FailureDetector, connection_id: int) -> None:
        broker_id = None if self._suspicions is None else self._suspicions.on_connection_lost(connection_id)
        broker = None if broker_id is None else self._image().brokers.get(broker_id)
        if broker is not None:
            self._on_dead(broker.broker_id, broker.epoch)

    patch.setattr(FailureDetector, "on_connection_lost", on_connection_lost)


def _silence_is_refusal(patch: Patch) -> None:
    """The controller takes a probe without an answer for a refused one."""
    real = BrokerSuspicions.on_probed

    def on_probed(self: BrokerSuspicions, probe: Any, outcome: ProbeOutcome, now_ms: int) -> bool:
        return real(self, probe, ProbeOutcome.REFUSED if outcome is ProbeOutcome.SILENT else outcome, now_ms)

    patch.setattr(BrokerSuspicions, "on_probed", on_probed)


def _old_probe_fences_new_process(patch: Patch) -> None:
    """The end of a process is remembered by the broker's id only, so that the next process is fenced for it."""
    real_end, real_expired = BrokerSessions.end, BrokerSessions.expired
    dead: dict[int, set[int]] = {}

    def end(self: BrokerSessions, broker_id: int, broker_epoch: int) -> bool:
        dead.setdefault(id(self), set()).add(broker_id)
        return real_end(self, broker_id, broker_epoch)

    def expired(self: BrokerSessions, now_ms: int) -> list[int]:
        found = real_expired(self, now_ms)
        return found + [b for b in sorted(dead.get(id(self), ())) if b in self._sessions and b not in found]

    patch.setattr(BrokerSessions, "expired", expired)
    patch.setattr(BrokerSessions, "end", end)


def _uncommitted_state_kept(patch: Patch) -> None:
    """A controller that loses its leadership keeps its uncommitted state, and continues from it when it leads again."""

    def image_now(self: Any) -> ClusterImage:
        image: ClusterImage = self._controller.image
        committed = self._committed()
        if not self._inflight and committed.offset > image.offset:
            self._controller.image = committed
        return self._controller.image  # type: ignore[no-any-return]

    patch.setattr(ControllerDriver, "_image_now", image_now)


def _snapshot_without_configs(patch: Patch) -> None:
    """A snapshot of the metadata lacks the config records."""
    real = snapshot.image_records

    def image_records(image: ClusterImage) -> Any:
        return real(replace(image, configs=ConfigsImage()))

    patch.setattr("barnabas.server.node.server.image_records", image_records)


# -- the quorum --------------------------------------------------------------------------------------------------------


def _vote_not_synced(patch: Patch) -> None:
    """A vote is sent before it is durable."""
    real = vars(vote_store)["replace_file"]
    patch.setattr(vote_store, "replace_file", lambda fs, path, data, *, durable: real(fs, path, data, durable=False))


def _half_is_a_majority(patch: Patch) -> None:
    """Half of the voters count as a majority."""
    patch.setattr(Voters, "majority", property(lambda self: max(1, len(self.keys) // 2)))


def _leader_never_resigns(patch: Patch) -> None:
    """A controller that no majority of the voters fetches from goes on as leader."""
    patch.setattr(EpochProgress, "has_lost_quorum", lambda self, now_ms: False)
    patch.setattr(EpochProgress, "next_check_ms", lambda self: None)


# -- coordinators ------------------------------------------------------------------------------------------------------


def _former_coordinator_answers(patch: Patch) -> None:
    """A coordinator that no longer leads its partition continues to answer requests."""
    patch.setattr(CoordinatorRuntime, "on_resigned", lambda self, partition, leader_epoch=None: None)


def _answers_before_commit(patch: Patch) -> None:
    """A coordinator answers a request when it has appended the records, without waiting for the high watermark."""
    real = CoordinatorContext.on_committed

    def execute(self: Any, *args: Any) -> Any:
        result = real_execute(self, *args)
        real(self, self.end_offset)
        return result

    real_execute = CoordinatorContext._execute
    patch.setattr(CoordinatorContext, "_execute", execute)


def _view_stands_still(patch: Patch) -> None:
    """A coordinator awaits the commit of a record only if a client waits for it."""
    patch.setattr(CoordinatorContext, "pending", property(lambda self: bool(self.waiting) or not self.caught_up))


def _markers_dropped(patch: Patch) -> None:
    """A transaction marker counts as written if the partition's leader cannot be reached."""
    from barnabas.protocol.wire.messages import write_txn_markers as wire
    from barnabas.server.peers.coordination import Markers

    real = Markers.write

    async def write(self: Any, broker_id: int, request: Any) -> Any:
        try:
            return await real(self, broker_id, request)
        except KafkaError:
            answers = [
                wire.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        wire.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                wire.WritableTxnMarkerPartitionResult(partition_index=index)
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
            return wire.WriteTxnMarkersResponse(markers=answers)

    patch.setattr(Markers, "write", write)


def _markers_dropped_at_compaction(patch: Patch) -> None:
    """Compaction removes a transaction marker as soon as it meets it: neither the records of the transaction nor
    delete.retention.ms retain it."""
    real = CleaningPass._fate

    def fate(self: CleaningPass, buf: Any, placed: Any, last_offset: int) -> Any:
        found = real(self, buf, placed, last_offset)
        header = placed[1]
        if not header.is_control or header.base_offset >= self._end:
            return found
        return replace(found, drop=True, keep_empty=header.last_offset == last_offset, set_horizon=False)

    patch.setattr(CleaningPass, "_fate", fate)


def _share_state_not_written(patch: Patch) -> None:
    """The state of a share group is kept in the leader's memory only."""

    async def persist(self: Any, *args: Any) -> None:
        return None

    patch.setattr(SharePartition, "_persist", persist)


def _offline_log_replaced(patch: Patch) -> None:
    """A broker creates an empty log instead of a log on an offline directory, and stays in the ISR."""
    patch.setattr(ReplicaDirectories, "_may_be_offline", lambda self, wanted: False)
    patch.setattr("barnabas.server.metadata.controller.directories._is_lost", lambda image, broker, directory: False)


def _any_topic_id(patch: Patch) -> None:
    """A log whose topic id cannot be read counts as one of the present topic of that name."""
    patch.setattr(FoundLogs, "_identified", lambda self, directory, entry, topic_id: replace(entry, topic_id=topic_id))


# -- security ----------------------------------------------------------------------------------------------------------


def _credentials_remembered(patch: Patch) -> None:
    """A broker remembers the SCRAM credentials that it has looked up, and never forgets one."""
    real = sasl_conversation.sasl_server
    remembered: dict[tuple[int, str], ScramCredential] = {}

    def sasl_server(mechanism: str, credentials: SaslCredentials, nonce: bytes) -> SaslServer:
        def scram_credential(number: int, user: str) -> ScramCredential | None:
            found = remembered.get((number, user)) or credentials.scram_credential(number, user)
            if found is not None:
                remembered[number, user] = found
            return found

        return real(mechanism, replace(credentials, scram_credential=scram_credential), nonce)

    patch.setattr(sasl_conversation, "sasl_server", sasl_server)


# -- quotas ------------------------------------------------------------------------------------------------------------


def _followers_delayed(patch: Patch) -> None:
    """The quotas of clients delay followers, too, and replace their Fetch responses by empty ones."""
    real = ClientQuotas.apply

    def apply(self: ClientQuotas, ctx: Any, *args: Any) -> Any:
        ctx.is_exempt = False
        return real(self, ctx, *args)

    patch.setattr(ClientQuotas, "apply", apply)


def _requests_before_the_login_served(patch: Patch) -> None:
    """A client that has sent ApiVersions may continue with any request, and not with SaslHandshake only."""
    real = SaslConversation.on_request

    def on_request(self: SaslConversation, request: Any, now_ms: float, wall_ms: int) -> Any:
        key = request.header.api_key
        if self._state is sasl_conversation._State.HANDSHAKE and key != ApiKey.SASL_HANDSHAKE:
            return sasl_conversation.HAND_OVER
        return real(self, request, now_ms, wall_ms)

    patch.setattr(SaslConversation, "on_request", on_request)


# -- hostile clients ---------------------------------------------------------------------------------------------------


def _requests_cost_nothing(patch: Patch) -> None:
    """The turns of the event loop do not count what the requests of a client have cost."""
    real = Turns.charge
    patch.setattr(Turns, "charge", lambda self, share, cost, *, waits: real(self, share, 0.0, waits=waits))


def _connections_are_clients(patch: Patch) -> None:
    """Every connection has a turn of its own, also if many are of one client."""
    real = Turns.share
    patch.setattr(Turns, "share", lambda self, listener, client, one: real(self, listener, f"{client}{id(one)}", one))


def _half_requests_kept(patch: Patch) -> None:
    """The memory of a request that has arrived in part stays counted when its connection ends."""
    real = AcceptedConnection._count_waiting
    patch.setattr(AcceptedConnection, "_count_waiting", lambda self: None if self._closing else real(self))


def _unsent_not_counted(patch: Patch) -> None:
    """The responses that clients do not read are not counted in the total of the node."""
    patch.setattr(RequestBudget, "count_unsent", lambda self, connection, size, *, is_progress: None)


def _inflation_kept(patch: Patch) -> None:
    """What was reserved to inflate a payload is not released when the payload is refused."""

    @contextmanager
    def room(self: InflationTotal, size: int) -> Iterator[None]:
        counted = size if size > UNCOUNTED_BYTES else 0
        self.reserved += counted
        yield
        self.reserved -= counted

    patch.setattr(INFLATING, "reserved", 0)  # of other tests
    patch.setattr(InflationTotal, "room", room)


PLANTED = [
    Planted("quotas delay followers", _followers_delayed, ClusterFaultMenu.KILL, 10, WRONG_OR_STUCK, quotas=True),
    Planted("acknowledged before the ISR has the record", _ack_before_isr, ClusterFaultMenu.KILL, 10),
    Planted("min.insync.replicas ignored", _min_insync_ignored, ClusterFaultMenu.KILL, 10, WRONG_OR_STUCK),
    Planted("truncated to the high watermark", _truncate_to_watermark, ClusterFaultMenu.KILL, 20, ANY),
    Planted("divergence ignored", _divergence_ignored, ClusterFaultMenu.KILL, 20, ANY),
    Planted("watermark of the leader alone", _watermark_of_the_leader_alone, ClusterFaultMenu.KILL, 10, ANY),
    Planted("any follower joins the ISR", _any_follower_joins, ClusterFaultMenu.KILL, 20, ANY),
    Planted("producers not copied", _producers_not_copied, ClusterFaultMenu.KILL, 10, ANY),
    Planted("last stable offset ahead", _stable_offset_ahead, ClusterFaultMenu.KILL, 10, ANY),
    Planted("unflushed records count as replicated", _leader_counts_unflushed, ClusterFaultMenu.BLACKOUT, 10, ANY),
    Planted("any replica is elected", _elect_any_replica, ClusterFaultMenu.KILL, 10, ANY),
    Planted("broker epochs ignored", _broker_epochs_ignored, ClusterFaultMenu.POWER, 20, ANY, first=110),
    Planted("unclean shutdowns forgotten", _unclean_shutdowns_forgotten, ClusterFaultMenu.POWER, 20, ANY),
    Planted("no recovery after a crash", _no_recovery, ClusterFaultMenu.POWER, 20, ANY),
    Planted("snapshot without configs", _snapshot_without_configs, ClusterFaultMenu.KILL, 20, ANY),
    Planted("a lost connection fences a broker", _lost_connection_fences, ClusterFaultMenu.KILL, 10),
    Planted("a probe without an answer counts as refused", _silence_is_refusal, ClusterFaultMenu.KILL, 20),
    Planted("an old probe fences a new process", _old_probe_fences_new_process, ClusterFaultMenu.KILL, 10),
    Planted("ISR changes of former leaders accepted", _old_leaders_not_fenced, ClusterFaultMenu.KILL, 20, ANY, first=4),
    Planted("a leader that is cut off acknowledges", _cut_off_leader_acknowledges, ClusterFaultMenu.KILL, 20),
    Planted("a leader without a quorum does not resign", _leader_never_resigns, ClusterFaultMenu.KILL, 10),
    Planted("a deposed leader goes on", _deposed_leader_stays, ClusterFaultMenu.KILL, 10, WRONG_OR_STUCK),
    Planted("broker epoch kept after the fence", _epoch_kept_after_the_fence, ClusterFaultMenu.KILL, 10),
    Planted("fenced for ever", _fenced_for_ever, ClusterFaultMenu.KILL, 10, WRONG_OR_STUCK, first=1),
    Planted("fenced without elections", _fence_without_elections, ClusterFaultMenu.KILL, 10),
    Planted("broker sessions do not expire", _sessions_do_not_expire, ClusterFaultMenu.KILL, 10, ANY, first=1),
    Planted("vote not synced", _vote_not_synced, ClusterFaultMenu.BLACKOUT, 40, ANY),
    Planted("half of the voters are a majority", _half_is_a_majority, ClusterFaultMenu.KILL, 20, ANY),
    Planted("a former coordinator answers", _former_coordinator_answers, ClusterFaultMenu.KILL, 10),
    Planted("a coordinator answers before the commit", _answers_before_commit, ClusterFaultMenu.KILL, 10),
    Planted("the committed view stands still", _view_stands_still, ClusterFaultMenu.KILL, 5),
    Planted("an empty log replaces an offline one", _offline_log_replaced, ClusterFaultMenu.KILL, 10, ANY, first=70),
    Planted("a log without topic id is taken for the topic's", _any_topic_id, ClusterFaultMenu.KILL, 5, first=1),
    Planted("share state not written", _share_state_not_written, ClusterFaultMenu.KILL, 10),
    Planted("a joining replica does not limit the watermark", _watermark_of_the_isr_alone, ClusterFaultMenu.KILL, 10),
    Planted("uncommitted state of a former controller kept", _uncommitted_state_kept, ClusterFaultMenu.KILL, 20),
    Planted("markers for unreachable leaders dropped", _markers_dropped, ClusterFaultMenu.KILL, 20, first=30),
    Planted(
        "markers dropped at compaction",
        _markers_dropped_at_compaction,
        ClusterFaultMenu.KILL,
        10,
        first=1,
        settings=COMPACTING,
    ),
    Planted("credentials of removed users remembered", _credentials_remembered, ClusterFaultMenu.KILL, 5, sasl=True),
    Planted("requests before the login served", _requests_before_the_login_served, ClusterFaultMenu.KILL, 5, sasl=True),
    Planted("expensive requests cost nothing", _requests_cost_nothing, ClusterFaultMenu.KILL, 2, hostile=True),
    Planted("each connection is a client", _connections_are_clients, ClusterFaultMenu.KILL, 2, hostile=True),
    Planted(
        "half requests stay counted", _half_requests_kept, ClusterFaultMenu.KILL, 5, settings=COUNTING, hostile=True
    ),
    Planted("unread responses are not counted", _unsent_not_counted, ClusterFaultMenu.KILL, 5, hostile=True),
    Planted("what a refused payload reserved is kept", _inflation_kept, ClusterFaultMenu.KILL, 5, hostile=True),
]
