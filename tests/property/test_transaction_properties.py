"""Random histories of one transactional id, with producers, zombies, timeouts and restarts.

Invariants: the epochs of a producer id never decrease, and no two producers get the same epoch. The producer with the
newest epoch is not fenced. Each transaction has one outcome in all its partitions. A successful commit is never
followed by an abort of the same transaction, nor the reverse. No decision is lost. Replaying the log gives the same
state.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.ports import LogRecord, ProducerIdAndEpoch
from barnabas.server.coordination.timeline import Timeline
from barnabas.server.coordination.transaction.ports import MarkerJob
from barnabas.server.coordination.transaction.shard import TransactionShard
from barnabas.server.coordination.transaction.state import FOLLOWS, TransactionMetadata, from_record
from barnabas.server.coordination.transaction.transitions import InitProducerIdArgs, ProducerIdNeededError
from tests.configs import transaction_config
from tests.unit.server.coordination.kit import seeded

NAME = "id"
PARTITIONS = [TopicPartition("t", i) for i in range(3)]


@dataclass
class World:
    """A shard and its log, the marker queue, the partitions, and all producers that have received an epoch."""

    now_ms: int = 1_000
    log: list[LogRecord] = field(default_factory=list)
    jobs: list[MarkerJob] = field(default_factory=list)
    producers: list[ProducerIdAndEpoch] = field(default_factory=list)
    known: list[tuple[int, int]] = field(default_factory=list)
    rightful: ProducerIdAndEpoch | None = None
    """The producer with the newest epoch, until a new incarnation or a timeout fences it."""
    states: list[TransactionMetadata] = field(default_factory=list)
    open_in: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    outcomes: dict[tuple[int, int, int], bool] = field(default_factory=dict)
    transactions: int = 0
    fresh: int = 100
    shard: TransactionShard = field(init=False)

    def __post_init__(self) -> None:
        self.load()

    # -- MarkerQueue

    def put(self, job: MarkerJob) -> None:
        self.jobs.append(job)

    def drop(self, home: int) -> None:
        self.jobs.clear()

    # -- a minimal runtime

    def load(self) -> None:
        self.jobs.clear()
        self.shard = TransactionShard(0, transaction_config(), Timeline(), self, lambda: 2)
        for record in self.log:
            decoded = self.shard.log_format.decode(record)
            assert decoded is not None
            self.shard.apply(decoded, 0, -1)
        op = self.op()
        self.shard.on_loaded(op)
        for armed in op.timers:
            if armed.key[0] == "markers":
                self.timer(armed.key)

    def op(self) -> WriteOperation:
        return WriteOperation(self.now_ms, seeded())

    def timer(self, key: tuple[str, ...]) -> None:
        op = self.op()
        self.shard.on_timer(op, key)
        self.execute(op)

    def execute(self, op: WriteOperation) -> None:
        for record in op.records:
            encoded = self.shard.log_format.encode(record)
            self.log.append(encoded)
            self.shard.apply(record, len(self.log), -1)
            if record.value is not None:
                self.check_step(from_record(record.value))
        if op.append_callback is not None:
            after = self.op()
            op.append_callback(after, ErrorCode.NONE)
            self.execute(after)

    def check_step(self, now: TransactionMetadata) -> None:
        if self.states:
            before = self.states[-1]
            assert before.state in FOLLOWS[now.state]
            if now.producer_id == before.producer_id:
                assert now.epoch >= before.epoch
            else:
                assert now.producer_id > before.producer_id, "ids come from the controller in rising order"
        self.states.append(now)

    # -- steps

    def init(self, who: ProducerIdAndEpoch | None, fresh: bool) -> None:
        ask = InitProducerIdArgs(60_000, who.producer_id, who.epoch) if who is not None else InitProducerIdArgs(60_000)
        op = self.op()
        try:
            response = self.shard.init_producer_id(op, NAME, ask)
        except ProducerIdNeededError:
            if not fresh:
                return
            self.fresh += 1
            response = self.shard.init_producer_id(op, NAME, ask, self.fresh)
        except KafkaError as error:
            self.check_fence(who, error)
            return
        if op.records:
            self.rightful = None
        self.execute(op)
        if response.error_code == 0:
            told = (response.producer_id, response.producer_epoch)
            if who is None:
                assert told not in self.known, "a new incarnation never gets an epoch that somebody has"
            self.tell(*told)

    def tell(self, producer_id: int, epoch: int) -> None:
        self.known.append((producer_id, epoch))
        self.rightful = ProducerIdAndEpoch(producer_id, epoch)
        self.producers.append(self.rightful)

    def check_fence(self, who: ProducerIdAndEpoch | None, error: KafkaError) -> None:
        if who is not None and who == self.rightful:
            assert error.code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE), error

    def add(self, who: ProducerIdAndEpoch, partition: TopicPartition, version: int) -> None:
        op = self.op()
        try:
            self.shard.add_partitions(op, NAME, who, [partition], version)
        except KafkaError as error:
            self.check_fence(who, error)
            return
        rightful = self.shard.transactions[NAME]
        self.execute(op)
        assert (who.producer_id, who.epoch) == rightful.identity
        self.open_in.setdefault(partition, {}).setdefault(who.producer_id, who.epoch)  # it writes

    def end(self, who: ProducerIdAndEpoch, commit: bool, version: int) -> None:
        before = self.shard.transactions.get(NAME)
        op = self.op()
        try:
            response = self.shard.end_txn(op, NAME, who, commit=commit, version=version, fresh_id=self.fresh + 1)
        except KafkaError as error:
            assert self.shard.transactions.get(NAME) is before
            self.check_fence(who, error)
            return
        self.fresh += 1
        self.execute(op)
        if version == 2:
            self.tell(response.producer_id, response.producer_epoch)

    def write_markers(self) -> None:
        if not self.jobs:
            return
        job = self.jobs.pop(0)
        self.transactions += 1
        for partition in job.partitions:
            opened = self.open_in.get(partition, {}).pop(job.producer_id, None)
            if opened is not None:
                key = (self.transactions, job.producer_id, opened)
                assert self.outcomes.setdefault(key, job.commit) == job.commit
                assert job.epoch >= opened
                if job.version >= 2:
                    assert job.epoch > opened
        op = self.op()
        self.shard.markers_written(op, job)
        self.execute(op)

    def check(self) -> None:
        """Check that a replay gives the same state, and that no partition has an open transaction at the end."""
        live = self.shard.transactions.snapshot()
        decided = [txn for txn in live.values() if txn.state.name.startswith("PREPARE")]
        assert len(self.jobs) == len(decided), "a decision has exactly one job"
        replayed = TransactionShard(0, transaction_config(), Timeline(), self, lambda: 2)
        for record in self.log:
            decoded = replayed.log_format.decode(record)
            assert decoded is not None
            replayed.apply(decoded, 0, -1)
        assert replayed.transactions.snapshot() == live

    def finish(self) -> None:
        while self.jobs:
            self.write_markers()
        txn = self.shard.transactions.get(NAME)
        still_open = {tp for tp, producers in self.open_in.items() if producers}
        assert still_open == (set(txn.partitions) if txn is not None else set())


STEPS = st.one_of(
    st.tuples(st.just("init"), st.integers(-1, 50), st.booleans()),
    st.tuples(st.just("add"), st.integers(-3, 50), st.sampled_from(PARTITIONS), st.sampled_from([1, 2])),
    st.tuples(st.just("end"), st.integers(-3, 50), st.booleans(), st.sampled_from([1, 2, 2])),
    st.tuples(st.just("markers")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("time"), st.integers(1, 100_000)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=60), st.sampled_from([0, 32_760]))
def test_random_histories_of_one_transactional_id_keep_the_invariants(
    steps: list[tuple[object, ...]], first_epoch: int
) -> None:
    world = World()
    world.init(None, True)
    if first_epoch:
        for _ in range(3):  # an epoch near the maximum, so that few steps reach the maximum
            world.init(None, True)
        raised = world.shard.transactions[NAME]
        skipped = TransactionMetadata(raised.producer_id, first_epoch, timeout_ms=60_000, updated_ms=world.now_ms)
        from barnabas.server.coordination.transaction.state import to_record

        op = world.op()
        op.write(to_record(NAME, skipped, 1))
        world.execute(op)
        world.tell(skipped.producer_id, skipped.epoch)

    def producer(choice: int) -> ProducerIdAndEpoch:
        """Indexes of producers. Negative indexes are the newest ones, so that some steps succeed."""
        return (
            world.producers[choice]
            if choice < 0 and -choice <= len(world.producers)
            else (world.producers[choice % len(world.producers)])
        )

    for step in steps:
        match step:
            case ("init", int(choice), bool(fresh)):
                world.init(None if choice < 0 else producer(choice), fresh)
            case ("add", int(choice), TopicPartition() as partition, int(version)):
                world.add(producer(choice), partition, version)
            case ("end", int(choice), bool(commit), int(version)):
                world.end(producer(choice), commit, version)
            case ("markers",):
                world.write_markers()
            case ("restart",):
                world.load()
            case ("time", int(passed)):
                world.now_ms += passed
                txn = world.shard.transactions.get(NAME)
                if txn is not None:
                    world.timer(("timeout", NAME))
                    if world.shard.transactions[NAME] is not txn:
                        world.rightful = None
        world.check()
    world.finish()
