"""A cluster of the production machines (leaders, followers, controller) in a world that breaks them from one seed.

What is real: `replication.rules`, the controller's decisions and sessions, images, `storage.epochs`. What is modelled:
logs are lists, the network is a heap of calls that may be lost, doubled, delayed and overtaken, the metadata log
commits at once, and brokers learn of images late. Four brokers, one partition of three replicas, min.insync.replicas 2.

Functions of the rules are called through their modules, so that a test can put a planted bug in their place.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages import alter_partition as ap
from barnabas.protocol.wire.messages import alter_partition_reassignments as apr
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from barnabas.protocol.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from barnabas.protocol.wire.messages.create_topics import CreatableTopicConfig as TopicConfig
from barnabas.protocol.wire.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.server.metadata.controller import brokers as broker_decisions
from barnabas.server.metadata.controller import partitions as partition_decisions
from barnabas.server.metadata.controller.controller import Controller
from barnabas.server.metadata.controller.sessions import BrokerSessions
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.controller.update_features import UpgradeType
from barnabas.server.metadata.features import DEFAULT_LEVELS, ELR_VERSION, SUPPORTED_FEATURES, bootstrap_records
from barnabas.server.metadata.image.cluster import ClusterImage, PartitionImage
from barnabas.server.replication.rules import follower, isr, leader, watermark
from tests.configs import controller_config
from tests.property.replication_invariants import INVARIANTS, Oracle, Violation
from tests.property.replication_model import ModelBroker, Record

BROKERS = (1, 2, 3, 4)
MIN_INSYNC = 2
LAG_MAX_MS = 60
SESSION_TIMEOUT_MS = 45
TICK_MS = 9
REQUEST_TIMEOUT_MS = 40
CHAOS_MS = 1_100
CALM_MS = 1_500


class World:
    """`run` plays one seed; it raises `Violation` with the seed and the last steps."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.operator = random.Random(f"operator {seed}")
        self.now = 0
        self.history: list[str] = []
        self.elr = self.rng.random() < 0.6
        self.lossy = self.elr and self.rng.random() < 0.7
        """Crashes lose what was not synced. Then at most min.insync.replicas - 1 at a time are bearable."""
        self.switched = False
        """Eligible leader replicas were switched on or off."""
        self.calm = False
        self.dirty = True
        self.cut: set[tuple[int, int]] = set()
        self.oracle = Oracle()
        self.brokers = {n: ModelBroker(n) for n in BROKERS}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._values = 0
        self.settings = controller_config(broker_session_timeout_ms=SESSION_TIMEOUT_MS)
        self.controller = Controller(self.settings, ClusterImage(cluster_id="c"))
        self.sessions = BrokerSessions(self.controller.image, 0, SESSION_TIMEOUT_MS)
        self._found()

    # -- life ------------------------------------------------------------------------------------------------------

    def _found(self) -> None:
        levels = {**DEFAULT_LEVELS, ELR_VERSION: int(self.elr)}
        self.controller.apply(self.controller.image, bootstrap_records(levels))
        for broker in self.brokers.values():
            self._register(broker)
            self.sessions.on_heartbeat(broker.id, broker.epoch, 1 << 40, 0)
            self.commit(broker_decisions.decide_heartbeat(self.image, self._beat(broker, 1 << 40), self.context()))
        create = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name="t",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])],
                    configs=[TopicConfig(name="min.insync.replicas", value=str(MIN_INSYNC))],
                )
            ]
        )
        self.commit(self.controller.decide(self.image, create, self.context()))
        for broker in self.brokers.values():
            self.after(self.rng.randrange(TICK_MS), lambda b=broker: self._tick(b))  # type: ignore[misc]
        self.after(0, self._controller_tick)
        self.after(3, self._produce)
        self.after(20, self._chaos)

    def run(self) -> None:
        try:
            self._run_until(CHAOS_MS)
            self._heal()
            self._run_until(CHAOS_MS + CALM_MS)
            self._check()
            self._check_converged()
        except Violation as violation:
            mode = "elr" + (" lossy" if self.lossy else "") if self.elr else "plain"
            steps = "\n  ".join(self.history[-40:])
            raise Violation(f"seed {self.seed} ({mode}): {violation}\n  {steps}") from None

    def _run_until(self, end: int) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
            if self.dirty:
                self._check()
                self.dirty = False

    def _check(self) -> None:
        for invariant in INVARIANTS:
            invariant.check(self)

    def after(self, delay: int, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, event))

    def send(self, sender: int, receiver: int, event: Callable[[], None]) -> None:
        """The controller is 0. What arrives is run if the receiver lives."""
        times = 1
        if not self.calm:
            if (sender, receiver) in self.cut or self.rng.random() < 0.04:
                return
            if self.rng.random() < 0.06:
                times = 2
        for _ in range(times):
            slow = not self.calm and self.rng.random() < 0.04
            self.after(self.rng.randrange(1, 90 if slow else 5), lambda: self._deliver(receiver, event))

    def _deliver(self, receiver: int, event: Callable[[], None]) -> None:
        if receiver == 0:
            event()
            return
        broker = self.brokers[receiver]
        if broker.paused_until > self.now:
            self.after(broker.paused_until - self.now, lambda: self._deliver(receiver, event))
        elif broker.up:
            event()

    def log(self, text: str) -> None:
        self.history.append(f"{self.now:5d} {text}")

    # -- the controller ----------------------------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def partition(self) -> PartitionImage:
        found = self.image.topics.partition("t", 0)
        assert found is not None
        return found

    def context(self) -> DecideContext:
        active = [b.broker_id for b in self.image.brokers if b.is_active]
        return DecideContext(
            now_ms=self.now,
            rng=self.rng,
            settings=self.settings,
            version=4,
            live_brokers=self.sessions.live(self.now),
            may_stop=lambda b: self.sessions.may_stop(b, active),
        )

    def commit(self, decision: Decision[Any, Any]) -> None:
        if not decision.records:
            return
        before = self.image.topics.partition("t", 0)
        self.controller.apply(self.image, decision.records)
        self.dirty = True
        after = self.image.topics.partition("t", 0)
        if after is not None and after != before:
            self.log(
                f"controller: leader {after.leader} epoch {after.leader_epoch}/{after.partition_epoch} isr {after.isr} "
                f"elr {after.elr} known {after.last_known_elr} replicas {after.replicas}"
            )

    def _controller_tick(self) -> None:
        for broker_id in self.sessions.expired(self.now):
            self.log(f"controller: fences {broker_id}")
            self.commit(broker_decisions.decide_fence_broker(self.image, broker_id, self.context()))
            self.sessions.forget(broker_id)
        if self.rng.random() < 0.05:
            self.commit(partition_decisions.decide_balance_leaders(self.image, self.context()))
        self.after(TICK_MS, self._controller_tick)

    def _register(self, broker: ModelBroker) -> None:
        """Arrives at the controller."""
        request = BrokerRegistrationRequest(
            broker_id=broker.id,
            cluster_id="c",
            incarnation_id=UUID(int=broker.id + 100 * broker.life),
            features=[
                Feature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
                for name, levels in SUPPORTED_FEATURES.items()
            ],
            log_dirs=[UUID(int=9_000 + broker.id)],
            previous_broker_epoch=broker.previous_epoch,
        )
        before = self.image.topics.partition("t", 0)
        decision = self.controller.decide(self.image, request, self.context())
        assert isinstance(decision.response, BrokerRegistrationResponse)
        if decision.response.error_code:
            return
        self.commit(decision)
        after = self.image.topics.partition("t", 0)
        if before is not None and after is not None:
            self.oracle.unclean |= ({*before.isr, *before.elr} - {*after.isr, *after.elr}) & {broker.id}
        broker.epoch = decision.response.broker_epoch

    def _beat(self, broker: ModelBroker, offset: int) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            current_metadata_offset=offset,
            want_shut_down=broker.stopping,
        )

    def _on_heartbeat(self, request: BrokerHeartbeatRequest, life: int) -> None:
        registered = self.image.brokers.get(request.broker_id)
        if registered is None or registered.epoch != request.broker_epoch:
            return
        self.sessions.on_heartbeat(request.broker_id, request.broker_epoch, request.current_metadata_offset, self.now)
        decision = self.controller.decide(self.image, request, self.context())
        self.commit(decision)
        if request.want_shut_down and decision.records:
            self.sessions.on_leaders_moved(request.broker_id, self.image.offset)
        response = decision.response
        assert isinstance(response, BrokerHeartbeatResponse)
        if response.is_fenced:
            self.sessions.forget(request.broker_id)
        if response.should_shut_down:
            broker = self.brokers[request.broker_id]
            self.send(0, request.broker_id, lambda: self._stop(broker, life))

    # -- a broker ----------------------------------------------------------------------------------------------------

    def _tick(self, broker: ModelBroker) -> None:
        self.after(TICK_MS + self.rng.randrange(3), lambda: self._tick(broker))
        if not broker.up or broker.paused_until > self.now:
            return
        life = broker.life
        if broker.epoch < 0:
            self.send(broker.id, 0, lambda: self._register(broker) if broker.epoch < 0 and broker.up else None)
            return
        offset = -1 if broker.image is None else broker.image.offset
        beat = self._beat(broker, offset)
        self.send(broker.id, 0, lambda: self._on_heartbeat(beat, life))
        self.send(broker.id, 0, lambda: self._send_image(broker, life))
        broker.flushed = max(broker.flushed, min(broker.log.log_end_offset, broker.flushed + self.rng.randrange(3)))
        if self.rng.random() < 0.1:
            broker.checkpoint = broker.high_watermark
        if broker.leader is not None:
            shrunk = isr.try_shrink(broker.leader, broker.log.log_end_offset, broker.active(), LAG_MAX_MS, self.now)
            if shrunk is not None:
                broker.leader = shrunk[0]
                self._propose(broker, shrunk[1])
            self._advance(broker)
        else:
            self._fetch(broker)

    def _send_image(self, broker: ModelBroker, life: int) -> None:
        image = self.image

        def arrive() -> None:
            if broker.life == life and (broker.image is None or image.offset > broker.image.offset):
                self._apply_image(broker, image)

        self.send(0, broker.id, arrive)

    def _apply_image(self, broker: ModelBroker, image: ClusterImage) -> None:
        me = image.brokers.get(broker.id)
        if me is None or me.epoch != broker.epoch:
            return
        broker.image = image
        state = image.topics.partition("t", 0)
        if state is None:
            return
        self.dirty = True
        if broker.id not in state.replicas:
            broker.drop()
        elif state.leader != broker.id:
            broker.resign()
            self._follow(broker, state)
        elif broker.leader is None or state.leader_epoch > broker.leader.leader_epoch:
            broker.resign()
            broker.follower = None
            end = broker.log.log_end_offset
            broker.log.epochs.assign(state.leader_epoch, end)
            broker.leader = leader.begin_leadership(
                broker.id, state.leader_epoch, state.partition_epoch, state.replicas, state.isr, end, self.now
            )
            self.log(f"{broker.id} leads in epoch {state.leader_epoch} from {end}, watermark {broker.high_watermark}")
            self._advance(broker)
        else:
            broker.leader = broker.leader.on_image(state.partition_epoch, state.replicas, state.isr)
            self._advance(broker)

    def _follow(self, broker: ModelBroker, state: PartitionImage) -> None:
        electable = broker.id in (*state.isr, *state.elr)
        broker.follower = follower.follow(broker.follower, state.leader, state.leader_epoch, electable=electable)

    # -- a leader ----------------------------------------------------------------------------------------------------

    def _advance(self, broker: ModelBroker) -> None:
        state = broker.leader
        assert state is not None
        end = broker.log.log_end_offset
        joining = isr.joining_soon(state, end, broker.active(), LAG_MAX_MS, self.now)
        after = watermark.high_watermark(
            state, end, broker.high_watermark, min_insync_replicas=MIN_INSYNC, joining=joining
        )
        if after != broker.high_watermark:
            self.dirty = True
            self.oracle.on_watermark(broker, after)
            broker.high_watermark = after
            self.log(f"{broker.id} watermark {after} in epoch {state.leader_epoch}")
        waiting = []
        for offset, record in broker.waiting:
            code = leader.acknowledge(state, offset + 1, broker.high_watermark, MIN_INSYNC)
            if code is None:
                waiting.append((offset, record))
            elif code is ErrorCode.NONE:
                self.dirty = True
                self.oracle.acked[offset] = record
        broker.waiting = waiting

    def _produce(self) -> None:
        idle = self.rng.random() < 0.03
        self.after(self.rng.randrange(100, 200) if idle else self.rng.randrange(2, 14), self._produce)
        for broker in self.brokers.values():
            state = broker.leader
            if not broker.up or state is None or broker.paused_until > self.now:
                continue
            if leader.refuse_append(state, -1, MIN_INSYNC) is ErrorCode.NONE or self.rng.random() < 0.3:  # acks=1
                self._values += 1
                record = Record(state.leader_epoch, self._values)
                offset = broker.log.append([record])
                if leader.refuse_append(state, -1, MIN_INSYNC) is ErrorCode.NONE:
                    broker.waiting.append((offset, record))
                self._advance(broker)
            self.oracle.on_read(broker, self.rng)
        self.oracle.on_read(self.rng.choice(list(self.brokers.values())), self.rng)

    def _propose(self, broker: ModelBroker, proposal: leader.IsrProposal) -> None:
        self.log(f"{broker.id} proposes isr {proposal.isr} at {proposal.leader_epoch}/{proposal.partition_epoch}")
        assert broker.image is not None
        topic = broker.image.topics.get("t")
        assert topic is not None
        request = ap.AlterPartitionRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            topics=[
                ap.TopicData(
                    topic_id=topic.topic_id,
                    partitions=[
                        ap.PartitionData(
                            partition_index=0,
                            leader_epoch=proposal.leader_epoch,
                            partition_epoch=proposal.partition_epoch,
                            new_isr_with_epochs=[ap.BrokerState(broker_id=b, broker_epoch=e) for b, e in proposal.isr],
                        )
                    ],
                )
            ],
        )
        life, attempt = broker.life, object()
        broker.attempt = attempt

        def outcome(code: ErrorCode, answer: isr.CommittedIsr | None = None) -> None:
            if broker.life != life or broker.attempt is not attempt or broker.leader is None:
                return
            broker.attempt = None
            broker.leader, todo = isr.on_outcome(broker.leader, proposal, code, answer)
            if todo is isr.Next.RETRY and broker.up:
                self._propose(broker, proposal)
            elif todo is isr.Next.DONE:
                self._advance(broker)

        def decide() -> None:
            decision = self.controller.decide(self.image, request, self.context())
            self.commit(decision)
            response = decision.response
            assert isinstance(response, ap.AlterPartitionResponse)
            part = response.topics[0].partitions[0] if response.topics else None
            code = ErrorCode(response.error_code or (part.error_code if part is not None else 0))
            self.log(f"controller answers {broker.id}: {code.name}")
            answer = None
            if part is not None and code is ErrorCode.NONE:
                answer = isr.CommittedIsr(part.leader_epoch, part.partition_epoch, tuple(part.isr))
            self.send(0, broker.id, lambda: outcome(code, answer))

        self.send(broker.id, 0, decide)
        self.after(REQUEST_TIMEOUT_MS, lambda: self._deliver(broker.id, lambda: outcome(ErrorCode.REQUEST_TIMED_OUT)))

    # -- a follower --------------------------------------------------------------------------------------------------

    def _fetch(self, broker: ModelBroker) -> None:
        state = broker.follower
        if state is None or (broker.asked is not None and self.now < broker.asked_until):
            return
        asked = follower.next_request(state, broker.log, self.now)
        if asked is None or state.leader_id not in self.brokers:
            return
        broker.asked, broker.asked_until = asked, self.now + REQUEST_TIMEOUT_MS
        life, peer, epoch = broker.life, self.brokers[state.leader_id], broker.epoch

        def answered(code: ErrorCode, answer: Any) -> None:
            if broker.life != life or broker.follower is None:
                return
            if broker.asked is asked:
                broker.asked = None
            self._on_fetched(broker, asked, code, answer)

        def serve() -> None:
            code, answer = self._serve(peer, broker.id, epoch, asked)
            self.send(peer.id, broker.id, lambda: answered(code, answer))

        self.send(broker.id, peer.id, serve)

    def _serve(
        self, broker: ModelBroker, sender: int, sender_epoch: int, asked: follower.FetchFrom | follower.BoundsRequest
    ) -> tuple[ErrorCode, Any]:
        state, log = broker.leader, broker.log
        if state is None or sender not in state.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        code = leader.check_leader_epoch(state.leader_epoch, asked.leader_epoch)
        if code is not ErrorCode.NONE:
            return code, None
        if leader.is_stale_fetch(sender_epoch, broker.active().get(sender)):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        if isinstance(asked, follower.BoundsRequest):
            return ErrorCode.NONE, (log.log_start_offset, log.log_end_offset)
        if asked.last_fetched_epoch >= 0:
            end = log.epoch_end_offset(asked.last_fetched_epoch)
            if end.end_offset < 0 or asked.fetch_offset < log.log_start_offset:
                return ErrorCode.OFFSET_OUT_OF_RANGE, None
            if end.leader_epoch < asked.last_fetched_epoch or end.end_offset < asked.fetch_offset:
                answer = follower.FetchAnswer(broker.high_watermark, log.log_start_offset, diverging=end)
                return ErrorCode.NONE, (answer, [])
        if not log.log_start_offset <= asked.fetch_offset <= log.log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE, None
        broker.leader = state.on_fetch(
            sender,
            asked.fetch_offset,
            log.log_end_offset,
            self.now,
            broker_epoch=sender_epoch,
            log_start_offset=asked.log_start_offset,
        )
        grown = isr.try_expand(broker.leader, broker.high_watermark, broker.active())
        if grown is not None:
            broker.leader = grown[0]
            self._propose(broker, grown[1])
        self._advance(broker)
        records = log.slice(asked.fetch_offset, 4)
        return ErrorCode.NONE, (
            follower.FetchAnswer(broker.high_watermark, log.log_start_offset, has_records=bool(records)),
            records,
        )

    def _on_fetched(
        self, broker: ModelBroker, asked: follower.FetchFrom | follower.BoundsRequest, code: ErrorCode, answer: Any
    ) -> None:
        state, log = broker.follower, broker.log
        assert state is not None
        if code is not ErrorCode.NONE:
            broker.follower = follower.on_error(state, asked, code, self.now, backoff_ms=TICK_MS)
            return
        if isinstance(asked, follower.BoundsRequest):
            broker.follower, step = follower.on_bounds(state, asked, *answer, log, self.now, backoff_ms=TICK_MS)
            fetched, records = None, []
        else:
            fetched, records = answer
            broker.follower, step = follower.on_answer(state, asked, fetched, log)
        if step is None:
            return
        self.dirty = True
        match step:
            case follower.AppendFetched(leader_epoch):
                log.append([record for record in records if record.epoch <= leader_epoch])
                assert fetched is not None
                bounds = follower.after_append(fetched, log, broker.high_watermark)
            case follower.TruncateLog(offset):
                self.log(f"{broker.id} cuts {log.log_end_offset} to {offset}, watermark {broker.high_watermark}")
                log.truncate(offset)
                bounds = follower.after_truncation(log, broker.high_watermark)
            case follower.RestartLog(offset):
                self.log(f"{broker.id} begins again at {offset}")
                log.restart(offset)
                bounds = follower.after_truncation(log, broker.high_watermark)
        log.advance_start(bounds.log_start_offset)
        broker.flushed = min(broker.flushed, log.log_end_offset)
        begins_again = isinstance(step, follower.RestartLog) and not state.electable
        self.oracle.on_follower(broker, bounds.high_watermark, begins_again=begins_again)
        broker.high_watermark = bounds.high_watermark

    # -- who breaks it -----------------------------------------------------------------------------------------------

    def _chaos(self) -> None:
        if self.calm:
            return
        self.after(self.rng.randrange(10, 60), self._chaos)
        broker = self.rng.choice(list(self.brokers.values()))
        what = self.rng.choice(
            [
                "crash",
                "bounce",
                "bounce",
                "stop",
                "start",
                "start",
                "pause",
                "cut",
                "cut",
                "mend",
                "fence",
                "move",
                "delete",
            ]
        )
        if what == "crash" and broker.up and self._may_crash(broker):
            self.crash(broker)
        elif what == "bounce" and broker.up and self._may_crash(broker):
            self.crash(broker)
            if self.operator.random() < 0.3:
                self._unregister(broker)
            broker.start()
        elif what == "stop" and broker.up and broker.epoch >= 0:
            broker.stopping = True
        elif what == "start" and not broker.up:
            if self.operator.random() < 0.4:
                self._unregister(broker)
            broker.start()
            self.log(f"{broker.id} starts with {broker.log}")
        elif what == "pause":
            broker.paused_until = self.now + self.rng.randrange(10, 150)
        elif what == "cut":
            for other in self.rng.sample((0, *BROKERS), 2):
                self.cut |= (
                    {(broker.id, other)} if self.rng.random() < 0.5 else {(broker.id, other), (other, broker.id)}
                )
        elif what == "mend":
            self.cut.clear()
        elif what == "fence":
            self.log(f"controller: fences {broker.id}")
            self.commit(broker_decisions.decide_fence_broker(self.image, broker.id, self.context()))
            if not self.lossy and self.operator.random() < 0.3:
                self._switch_elr()
        elif what == "move":
            self._move()
        elif what == "delete" and broker.leader is not None and broker.up:
            offset = self.rng.randint(broker.log.log_start_offset, broker.high_watermark)
            broker.log.advance_start(offset)
            self.oracle.deleted_before = max(self.oracle.deleted_before, offset)

    def _may_crash(self, broker: ModelBroker) -> bool:
        """With loss: one at a time, counted from the crash until it is in sync again."""
        if not self.lossy:
            return True
        self.oracle.crashed -= {
            n
            for n in self.oracle.crashed
            if n in self.partition.isr and self.brokers[n].up and self.brokers[n].registered(self.image)
        }
        return len(self.oracle.crashed - {broker.id}) < MIN_INSYNC - 1

    def crash(self, broker: ModelBroker) -> None:
        kept = broker.log.log_end_offset
        if self.lossy:
            self.oracle.crashed.add(broker.id)
            kept = self.rng.randint(min(broker.flushed, kept), kept)
        self.log(f"{broker.id} crashes with {broker.log}, keeps {kept}")
        broker.crash(kept)
        self.dirty = True

    def _unregister(self, broker: ModelBroker) -> None:
        """Then nobody knows in which epoch it stopped: it counts as one that crashed."""
        if broker.id not in self.image.brokers or not self._may_crash(broker):
            return
        if self.lossy:
            self.oracle.crashed.add(broker.id)
        self.log(f"controller: forgets {broker.id}")
        request = UnregisterBrokerRequest(broker_id=broker.id)
        self.commit(broker_decisions.decide_unregister_broker(self.image, request, self.context()))
        self.sessions.forget(broker.id)

    def _switch_elr(self) -> None:
        """Off, if it is on; else on."""
        self.switched = True
        level = 1 - self.image.features.level(ELR_VERSION)
        self.log(f"controller: {ELR_VERSION} is {level}")
        kind = UpgradeType.UPGRADE if level else UpgradeType.SAFE_DOWNGRADE
        update = FeatureUpdateKey(feature=ELR_VERSION, max_version_level=level, upgrade_type=kind)
        context = DecideContext(self.now, self.rng, self.settings, version=1)
        decision = self.controller.decide(self.image, UpdateFeaturesRequest(feature_updates=[update]), context)
        assert decision.records, decision.response
        self.commit(decision)

    def _stop(self, broker: ModelBroker, life: int) -> None:
        if broker.up and broker.life == life:
            self.log(f"{broker.id} stops")
            broker.stop()
            if self.calm:
                self.after(TICK_MS, broker.start)  # it had been asked to before

    def _move(self) -> None:
        target: list[int] | None = self.rng.sample(BROKERS, 3) if self.rng.random() < 0.8 else None
        wanted = apr.ReassignablePartition(partition_index=0, replicas=target)
        request = apr.AlterPartitionReassignmentsRequest(topics=[apr.ReassignableTopic(name="t", partitions=[wanted])])
        self.commit(self.controller.decide(self.image, request, self.context()))

    def _heal(self) -> None:
        self.log("calm")
        self.calm = True
        self.cut.clear()
        for broker in self.brokers.values():
            broker.paused_until = 0
            if not broker.up:
                broker.start()

    def _check_converged(self) -> None:
        """Liveness: with everybody well, everything gets done."""
        state = self.partition
        if state.leader < 0 or set(state.isr) != set(state.replicas) or state.is_reassigning:
            raise Violation(f"liveness: the partition did not recover: {state}")
        chief = self.brokers[state.leader]
        for offset, record in self.oracle.acked.items():
            if offset >= self.oracle.deleted_before and chief.log.at(offset) != record:
                raise Violation(f"NoCommittedRecordLostGlobally: acknowledged {record} is not at {offset} in the end")
