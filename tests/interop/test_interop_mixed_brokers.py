"""One cluster of a broker of Apache Kafka and one of Barnabas. Each of the two has the controller once.

Records, leaderships and coordinators move between the two brokers, and one of them is killed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.interop.mixed_cluster import MixedCluster, Program
from tests.progress import Standstill, flush
from tests.system.transactions.exactly_once import read_committed

SETTINGS = ("broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=500")
OFFSETS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"
PARTITIONS = 2


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("kafka", id="controller-kafka"),
        pytest.param("barnabas", id="controller-barnabas", marks=pytest.mark.slow),
    ],
)
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """Node 1 is broker and controller, node 2 is a broker of the other program."""
    first: Program = request.param
    second: Program = "barnabas" if first == "kafka" else "kafka"
    folder = tmp_path_factory.mktemp(f"mixed-{first}")
    with MixedCluster(folder, {1: "broker,controller", 2: "broker"}, settings=SETTINGS) as cluster:
        cluster.start({1: first, 2: second})
        yield cluster


def create(cluster: MixedCluster, topic: str) -> None:
    with cluster.admin() as admin:
        admin.create_topic(topic, PARTITIONS, 2)
    cluster.wait_in_sync(topic, (1, 2))


def produce(cluster: MixedCluster, topic: str, numbers: range, partitions: int = PARTITIONS) -> None:
    """Write each number to partition (number mod `partitions`), with acknowledgements of all in-sync replicas."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce(
            topic,
            str(number),
            partition=number % partitions,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    flush(producer)
    assert failures == []


def expected(count: int) -> dict[int, list[str]]:
    return {p: [str(number) for number in range(p, count, PARTITIONS)] for p in range(PARTITIONS)}


@pytest.mark.timeout(300)
def test_records_are_replicated_in_both_directions_and_survive_a_kill(mixed: MixedCluster) -> None:
    create(mixed, "t")
    count = 0
    for leader in (1, 2, 1, 2):
        mixed.lead("t", leader)
        produce(mixed, "t", range(count, count + 100))
        count += 100
        assert read_committed(mixed.bootstrap, "t", PARTITIONS) == expected(count)
    program = mixed[2].program
    assert program is not None
    unacknowledged = Producer({"bootstrap.servers": mixed.bootstrap, "acks": 0, "linger.ms": 0})
    for _ in range(200):  # the follower may not have these when their leader dies: the leader truncates them later
        unacknowledged.produce("t", "lost or not", partition=0)
        unacknowledged.poll(0)
    mixed[2].kill()
    unacknowledged.purge()  # or it would write what it still has to the next leader, at any time
    flush(unacknowledged)
    produce(mixed, "t", range(count, count + 100))
    after_kill = read_committed(mixed.bootstrap, "t", PARTITIONS)
    assert {p: [v for v in values if v.isdigit()] for p, values in after_kill.items()} == expected(count + 100)
    mixed[2].start(program)
    mixed.wait_in_sync("t", (1, 2))
    mixed.lead("t", 2)
    assert read_committed(mixed.bootstrap, "t", PARTITIONS) == after_kill


@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.slow), "consumer"])
def test_a_group_goes_on_when_its_coordinator_moves(mixed: MixedCluster, protocol: str) -> None:
    topic = f"read-{protocol}"
    create(mixed, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": mixed.bootstrap,
            "group.id": f"g-{protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    assignments: list[list[TopicPartition]] = []
    consumer.subscribe([topic], on_assign=lambda _, partitions: assignments.append(partitions))
    seen: list[str] = []
    try:
        for turn, coordinator in enumerate((0, 2, 1, 2)):
            if coordinator:
                mixed.lead(OFFSETS, coordinator)
            produce(mixed, topic, range(turn * 100, turn * 100 + 100))
            seen += read(consumer, 100)
            commit(consumer)
            where = [TopicPartition(topic, p) for p in range(PARTITIONS)]
            assert [tp.offset for tp in consumer.committed(where, timeout=30)] == [turn * 50 + 50] * PARTITIONS
    finally:
        consumer.close()
    assert sorted(map(int, seen)) == list(range(400)), "each record once"
    assert len(assignments) == 1, "the group needs no rebalance that moves partitions"


def read(consumer: Consumer | ShareConsumer, count: int) -> list[str]:
    found: list[str] = []
    standstill = Standstill(f"{count} records are read", 60)
    while len(found) < count:
        standstill.check(len(found))
        messages = consumer.consume(count - len(found), timeout=0.1)
        found += [text(message) for message in messages if not is_too_early(message)]
    return found


def is_too_early(message: Message) -> bool:
    """Whether the broker does not know the topic yet: it is new, and each broker learns of it in its own time."""
    error = message.error()
    return error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def text(message: Message) -> str:
    assert message.error() is None, message.error()
    return (message.value() or b"").decode()


def commit(consumer: Consumer) -> None:
    """Commit, and repeat a commit that the move of the coordinator has interrupted."""
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.commit(asynchronous=False)
            return
        except KafkaException:  # NOT_COORDINATOR, until the client has found the new one
            if time.monotonic() > deadline:
                raise


@pytest.mark.timeout(300)
def test_transactions_go_on_when_their_coordinator_moves(mixed: MixedCluster) -> None:
    create(mixed, "written")
    producer = Producer({"bootstrap.servers": mixed.bootstrap, "transactional.id": "writer"})
    producer.init_transactions(60)
    written: list[str] = []
    for turn, (coordinator, leader) in enumerate([(2, 1), (1, 2), (2, 2)]):
        mixed.lead("written", leader)
        for ends in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            values = [f"{turn} {ends.__name__} {number}" for number in range(10)]
            for value in values:
                producer.produce("written", value, partition=0)
            assert producer.flush(60) == 0
            mixed.lead(TRANSACTIONS, coordinator)
            ends(60)
            if ends == producer.commit_transaction:
                written += values
            assert read_committed(mixed.bootstrap, "written", PARTITIONS)[0] == written
    # The next producer of the id gets the next epoch from the coordinator of the other kind, which fences this one.
    mixed.lead(TRANSACTIONS, 2)
    successor = Producer({"bootstrap.servers": mixed.bootstrap, "transactional.id": "writer"})
    successor.init_transactions(60)
    producer.begin_transaction()
    producer.produce("written", "a fenced producer's", partition=0)
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    assert read_committed(mixed.bootstrap, "written", PARTITIONS)[0] == written


@pytest.mark.timeout(300)
def test_a_share_group_goes_on_when_its_coordinators_move(mixed: MixedCluster) -> None:
    create(mixed, "queue")
    admin = AdminClient({"bootstrap.servers": mixed.bootstrap})
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, "sharers", incremental_configs=[earliest])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(20)
    consumer = ShareConsumer({"bootstrap.servers": mixed.bootstrap, "group.id": "sharers"})
    consumer.subscribe(["queue"])
    seen: list[str] = []
    try:
        for turn, broker in enumerate((0, 2, 1, 2)):
            if broker:
                for topic in (SHARES, OFFSETS, "queue"):
                    mixed.lead(topic, broker)
            produce(mixed, "queue", range(turn * 20, turn * 20 + 20))
            standstill = Standstill("the share group reads", 60)
            while len(set(seen)) < turn * 20 + 20:
                standstill.check(len(seen))
                seen += [text(message) for message in consumer.poll(timeout=0.5)]
            consumer.commit_sync(30)
    finally:
        consumer.close()
    assert sorted(set(map(int, seen))) == list(range(80))


@pytest.mark.timeout(300)
def test_a_broker_stops_in_order_and_runs_the_other_program_there_and_back(mixed: MixedCluster) -> None:
    """In a controlled shutdown the leaderships move first, so that producers get no error and lose no time. The other
    program starts on the same settings and directory, catches up, and leads."""
    create(mixed, "calm")
    first, second = mixed[1].program, mixed[2].program
    assert first is not None
    assert second is not None
    mixed.lead("calm", 2)
    count = 0
    for program in (first, second):
        produce(mixed, "calm", range(count, count + 100))
        mixed[2].stop()
        assert mixed.leaders("calm") == [1] * PARTITIONS
        produce(mixed, "calm", range(count + 100, count + 200))
        mixed[2].start(program)
        mixed.wait_in_sync("calm", (1, 2))
        mixed.lead("calm", 2)
        count += 200
        assert read_committed(mixed.bootstrap, "calm", PARTITIONS) == expected(count)
