"""Transactions while their coordinator, and the leaders of their partitions, move at random moments.

Three brokers run the production coordinators, gates and channels (`transaction_cluster`). Coordinators are deposed
without being notified, lose uncommitted records, and are elected again. Requests or responses are lost. New
incarnations of the producer fence old ones. At the end, without faults, the test checks:

no lost marker         every write is followed by a marker, and all markers of a transaction have the same outcome
no duplicate marker    no record of a transaction follows its marker, and no marker of an earlier coordinator follows
one
                       of a later coordinator
responses are true     a transaction whose commit succeeded is committed in all partitions; likewise an abort
no zombie              no producer commits after a newer incarnation has received its epoch
nobody fenced in vain  no producer is fenced before a newer incarnation has asked for an epoch

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.wire.schema import Request
from barnabas.server.broker.verification import TransactionVerifier
from barnabas.server.coordination.ports import ProducerIdAndEpoch
from barnabas.server.coordination.transaction import answers
from barnabas.server.coordination.transaction.answers import Answer, EpochAge
from barnabas.server.coordination.transaction.shard import TransactionShard
from barnabas.server.coordination.transaction.state import PREPARED
from barnabas.server.storage.producers.state import ProducerState
from tests.golden.transaction.conversation import TransactionRequestContext
from tests.unit.server.coordination.kit import run_virtual
from tests.unit.server.coordination.transaction_cluster import NODES, Cluster, Entry, Fate

NAME: Final = "id"
RETRIED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
ATTEMPTS: Final = 200
SEEDS: Final = 200
"""The number of random histories in which a planted bug must be found."""
FENCES: Final = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
Identity = tuple[int, int]


@dataclass
class History:
    """The requests of the producers, and the responses."""

    cluster: Cluster
    rng: random.Random
    programs: list[asyncio.Task[None]] = field(default_factory=list)
    begun: list[tuple[Identity, float]] = field(default_factory=list)
    """Each incarnation, with the time at which it received its first epoch."""
    told: dict[Identity, bool] = field(default_factory=dict)
    zombies: list[str] = field(default_factory=list)
    incarnations: int = 0
    asking: int = 0
    asked: dict[int, float] = field(default_factory=dict)
    """The requests for an epoch that are in progress, and when the last request of each incarnation ended."""
    fenced_in_vain: list[str] = field(default_factory=list)
    written: set[Identity] = field(default_factory=set)
    answered_by_leader: set[Identity] = field(default_factory=set)
    """The incarnations whose last EndTxn was answered by the coordinator that leads, and not by a deposed one."""

    def coordinator(self) -> Any:
        """Usually the coordinator; sometimes a deposed one that has not been notified."""
        believers = [node for node in self.cluster.nodes.values() if node.writer.epoch is not None]
        leader = self.cluster.nodes[self.cluster.state.leader]
        return (self.rng.choice(believers) if self.rng.random() < 0.3 else leader).coordinator

    async def insist(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Repeat a request until the response has no retriable error."""
        for _ in range(ATTEMPTS):
            answer = await ask()
            code = answer if isinstance(answer, ErrorCode) else ErrorCode(answer.error_code)
            if code not in RETRIED:
                return answer
            await asyncio.sleep(0.02 + self.rng.random() / 10)
        return answer

    async def program(self, transactions: int) -> None:
        """One incarnation of the producer."""
        self.incarnations += 1
        incarnation = self.incarnations
        request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
        loop = asyncio.get_running_loop()
        began = 0.0

        async def ask() -> InitProducerIdResponse:
            nonlocal began
            began = loop.time()
            self.asking += 1
            try:
                response: InitProducerIdResponse = await self.coordinator().init_producer_id(
                    TransactionRequestContext(5), request
                )
                return response
            finally:
                self.asking -= 1
                self.asked[incarnation] = loop.time()

        first = await self.insist(ask)
        if first.error_code:
            return
        identity: Identity = (first.producer_id, first.producer_epoch)
        self.begun.append((identity, asyncio.get_running_loop().time()))
        for _ in range(transactions):
            # a producer that aborts at once sends EndTxn while the markers of its last transaction are being written
            code = await self._write_all(ProducerIdAndEpoch(*identity)) if self.rng.random() < 0.8 else ErrorCode.NONE
            written = code is ErrorCode.NONE and identity in self.written
            answer = await self._end(identity, commit=written and self.rng.random() < 0.7)
            if identity in self.answered_by_leader:
                self._check_fence(incarnation, began, ErrorCode(answer.error_code))
            if answer.error_code:
                return
            identity = answer.producer_id, answer.producer_epoch

    def _check_fence(self, incarnation: int, began: float, code: ErrorCode) -> None:
        """A fence is in vain if no other incarnation has asked for an epoch since this one asked for its own."""
        others = [ended for other, ended in self.asked.items() if other != incarnation]
        if code in FENCES and not self.asking and all(ended < began for ended in others):
            self.fenced_in_vain.append(f"incarnation {incarnation} got {code.name}, and no other one has asked")

    async def _write_all(self, producer: ProducerIdAndEpoch) -> ErrorCode:
        partitions = self.rng.sample(sorted(self.cluster.data), self.rng.randint(1, len(self.cluster.data)))
        for tp in partitions:
            for sequence in range(self.rng.randint(1, 2)):
                code: ErrorCode = await self.insist(self._writing(producer, tp, sequence))
                if code is not ErrorCode.NONE:
                    return code
                self.written.add((producer.producer_id, producer.epoch))
        return ErrorCode.NONE

    def _writing(
        self, producer: ProducerIdAndEpoch, tp: TopicPartition, sequence: int
    ) -> Callable[[], Awaitable[ErrorCode]]:
        return lambda: self.cluster.write(NAME, producer, tp, sequence)

    async def _end(self, identity: Identity, *, commit: bool) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=NAME, producer_id=identity[0], producer_epoch=identity[1], committed=commit
        )
        requested: list[float] = []

        async def ask() -> Any:
            requested.append(asyncio.get_running_loop().time())
            coordinator = self.coordinator()
            answer = await coordinator.end_txn(TransactionRequestContext(5), request)
            if coordinator is self.cluster.nodes[self.cluster.state.leader].coordinator:
                self.answered_by_leader.add(identity)
            else:  # a deposed coordinator may not know the newest epoch
                self.answered_by_leader.discard(identity)
            return answer

        answer: EndTxnResponse = await self.insist(ask)
        if answer.error_code:
            return answer
        self.told[identity] = commit
        for newer, since in self.begun:
            if newer > identity and since < requested[-1] and commit:
                self.zombies.append(f"{identity} committed although {newer} had begun")
        return answer

    # -- the end

    async def settle_all(self) -> None:
        self.cluster.fate = always("deliver")
        self.cluster.commit()
        for node_id in NODES:
            self.cluster.tell(node_id)
        if self.programs:
            await asyncio.wait(self.programs)
            for program in self.programs:
                program.result()
        await self.program(0)  # the open transaction of the previous incarnation is aborted
        for _ in range(100):
            if not any(len(node.coordinator.markers) for node in self.cluster.nodes.values()):
                return
            await asyncio.sleep(0.1)
        raise AssertionError("markers are still on their way")

    def check(self) -> None:
        assert self.begun, "somebody must have come through"
        outcomes: dict[Identity, set[bool]] = {}
        for data in self.cluster.data.values():
            for identity, committed in closings(data.log):
                outcomes.setdefault(identity, set()).add(committed)
        assert {identity: found for identity, found in outcomes.items() if len(found) != 1} == {}, "torn"
        for identity, committed in self.told.items():
            assert outcomes.get(identity, {committed}) == {committed}, f"{identity} was told otherwise"
        assert self.zombies == []
        assert self.fenced_in_vain == []


def closings(log: list[Entry]) -> list[tuple[Identity, bool]]:
    """The transactions in a partition, by producer id and epoch, and how they ended."""
    found: list[tuple[Identity, bool]] = []
    open_epochs: dict[int, int] = {}
    closed: dict[int, int] = {}
    coordinators: dict[int, int] = {}
    for entry in log:
        who = entry.producer_id
        if entry.committed is None:
            assert entry.epoch > closed.get(who, -1), f"{entry} came after its transaction had ended"
            assert open_epochs.setdefault(who, entry.epoch) == entry.epoch, f"{entry} is in another's transaction"
            continue
        assert entry.coordinator_epoch >= coordinators.get(who, -1), f"{entry} is of an earlier coordinator"
        coordinators[who] = entry.coordinator_epoch
        if who in open_epochs:
            epoch = open_epochs.pop(who)
            assert entry.epoch > epoch, f"{entry} is the marker of an earlier transaction"
            closed[who] = epoch
            found.append(((who, epoch), entry.committed))
    assert open_epochs == {}, "transactions without a marker"
    return found


NODE = st.sampled_from(NODES)
STEPS = st.one_of(
    st.tuples(st.just("begin"), st.integers(1, 3)),
    st.tuples(st.just("elect"), NODE, st.booleans(), st.booleans()),
    st.tuples(st.just("elect"), NODE, st.booleans(), st.booleans()),
    st.tuples(st.just("tell"), NODE),
    st.tuples(st.just("move"), st.integers(0, 2), NODE, st.booleans()),
    st.tuples(st.just("hold")),
    st.tuples(st.just("commit")),
    st.tuples(st.just("fate"), st.sampled_from(["deliver", "lose", "mute", "chance"])),
)
HISTORIES = st.lists(st.tuples(STEPS, st.integers(0, 300)), min_size=3, max_size=30)


def always(fate: str) -> Fate:
    return lambda source, target, request: fate


async def play(steps: list[tuple[tuple[Any, ...], int]], seed: int) -> None:
    cluster = Cluster()
    history = History(cluster, random.Random(seed))

    def chance(source: int, target: int, request: Request) -> str:
        return history.rng.choice(["deliver", "deliver", "lose", "mute"])

    async def scenario() -> None:
        history.programs.append(asyncio.ensure_future(history.program(3)))
        for step, pause_ms in steps:
            match step:
                case ("begin", count):
                    history.programs.append(asyncio.ensure_future(history.program(count)))
                case ("elect", node_id, tail, told):
                    cluster.elect(node_id, tail=tail, told=told)
                case ("tell", node_id):
                    cluster.tell(node_id)
                case ("move", index, node_id, told):
                    cluster.move(TopicPartition("t", index), node_id, told=told)
                case ("hold",):
                    cluster.hold()
                case ("commit",):
                    cluster.commit()
                case ("fate", "chance"):
                    cluster.fate = chance
                case ("fate", fate):
                    cluster.fate = always(fate)
            await asyncio.sleep(pause_ms / 1000)
        await history.settle_all()
        history.check()

    await cluster.run(scenario)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(HISTORIES, st.integers(0, 1 << 16))
def test_transactions_stay_consistent_while_coordinators_and_leaders_move(
    steps: list[tuple[tuple[Any, ...], int]], seed: int
) -> None:
    run_virtual(play(steps, seed))


# -- planted bugs
# -------------------------------------------------------------------------------------------------------


def random_steps(rng: random.Random) -> list[tuple[tuple[Any, ...], int]]:
    def one() -> tuple[Any, ...]:
        flip = rng.random() < 0.5
        match rng.randrange(8):
            case 0:
                return ("begin", rng.randint(1, 3))
            case 1 | 2:
                return ("elect", rng.choice(NODES), flip, rng.random() < 0.5)
            case 3:
                return ("tell", rng.choice(NODES))
            case 4:
                return ("move", rng.randrange(3), rng.choice(NODES), flip)
            case 5:
                return ("hold",)
            case 6:
                return ("commit",)
        return ("fate", rng.choice(["deliver", "lose", "mute", "chance"]))

    return [(one(), rng.randint(0, 300)) for _ in range(30)]


def _decisions_are_not_resumed(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator does not complete prepared transactions."""
    patch.setattr(TransactionShard, "on_loaded", lambda self, op: None)


def _markers_are_not_retried(patch: pytest.MonkeyPatch) -> None:
    """Markers are not retried."""
    patch.setattr(
        "barnabas.server.coordination.transaction.markers.MarkerSender._schedule_retry", lambda self, pending: None
    )


def _coordinator_epochs_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Leaders do not compare coordinator epochs."""
    prepare: Any = ProducerState._prepare_marker

    def forgetful(self: Any, entry: Any, *rest: Any) -> None:
        entry.coordinator_epoch = -1
        prepare(self, entry, *rest)

    patch.setattr(ProducerState, "_prepare_marker", forgetful)


def _writes_are_not_verified(patch: pytest.MonkeyPatch) -> None:
    """Writes are accepted without verification at the coordinator."""
    patch.setattr(TransactionVerifier, "_needs_verification", lambda self, write, supported, *, enabled: False)


def _responses_precede_commit(patch: pytest.MonkeyPatch) -> None:
    """A leader treats its log end offset as the high watermark."""
    from tests.unit.server.coordination.transaction_cluster import StateWriter

    def own_end(self: StateWriter, tp: TopicPartition) -> int:
        self._require()
        return self._log.end if self.leads else self._alone[1]

    patch.setattr(StateWriter, "high_watermark", own_end)


def _next_epochs_are_fenced_during_markers(patch: pytest.MonkeyPatch) -> None:
    """EndTxn with the epoch that the producer has just received is fenced until the markers are written."""
    end_grid = answers.end_grid

    def fencing(version: int, *, commit: bool) -> answers.Grid:
        rows = dict(end_grid(version, commit=commit))
        for state in PREPARED:
            rows[state] = {**rows[state], EpochAge.CURRENT: Answer.FENCED}
        return rows

    patch.setattr(answers, "end_grid", fencing)


@pytest.mark.parametrize(
    "bug",
    [
        _next_epochs_are_fenced_during_markers,
        _decisions_are_not_resumed,
        _markers_are_not_retried,
        _coordinator_epochs_are_ignored,
        _writes_are_not_verified,
        _responses_precede_commit,
    ],
)
def test_planted_bugs_are_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    run_virtual(play(random_steps(random.Random(0)), 0))  # without a bug the history is correct
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(SEEDS):
            run_virtual(play(random_steps(random.Random(seed)), seed))
