"""Data directories traded with Apache Kafka: its tool reads ours, we read its, and it goes on where we left off."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from barnabas.core import ids
from barnabas.protocol.records.batch import Record, check_crc, iter_batches, iter_records
from barnabas.protocol.records.compression import CompressionType
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.fs import OsFileSystem
from barnabas.server.storage.log import Log
from tests.configs import log_config
from tests.interop.apache_kafka import CLUSTER_ID, ApacheKafka
from tests.interop.jars import kafka_classpath
from tests.unit.server.storage.logs import LogHarness, batch

NOW_MS = 1_700_000_100_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PER_CODEC = 400
VALUE = b"some text that compresses, some that does not: "


# --- ours, read by Kafka's DumpLogSegments


def write_ours(directory: Path) -> None:
    """Every codec, several segments, idempotent and transactional producers, commits, aborts, an open transaction."""
    config = log_config(internal_segment_bytes=60_000, index_interval_bytes=2048)
    logs = LogHarness(disk=OsFileSystem(), path=str(directory), config=config, now_ms=NOW_MS)
    for i in range(300):
        codec = list(CompressionType)[i % 5]
        logs.append(batch(10, timestamp=NOW_MS + i * 10 % 700, value=VALUE * 3 + b"%d" % i, codec=codec), epoch=i // 50)
    for i in range(60):
        data = batch(2, timestamp=NOW_MS + i, producer_id=5, producer_epoch=0, base_sequence=2 * i, transactional=True)
        logs.append(data, epoch=6)
        if i % 10 == 9:
            logs.marker(5, 0, commit=i % 20 == 9)
    logs.append(batch(1, timestamp=NOW_MS, producer_id=6, producer_epoch=3, base_sequence=0, transactional=True))
    logs.log.close()


def dump(directory: Path, *options: str) -> str:
    kinds = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    files = sorted(str(p) for p in directory.iterdir() if p.suffix in kinds)
    done = subprocess.run(
        [
            "java",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            kafka_classpath(),
            "org.apache.kafka.tools.DumpLogSegments",
            *options,
            "--files",
            ",".join(files),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def complaints(output: str) -> list[str]:
    """What the tool objects to. It always calls the first offset of a file non-consecutive to -1."""
    lines = output.splitlines()
    found = [line for line in lines if re.search(r"(?i)mismatch|isvalid: false|exception|corrupt|out of order", line)]
    found += [line for line in lines if "is followed by" in line and not line.strip().startswith("-1 ")]
    return found + [line for line in lines if re.search(r"indexed offset:|Found timestamp", line)]


@pytest.mark.parametrize("option", [None, "--index-sanity-check", "--verify-index-only"])
def test_kafka_reads_what_we_write(tmp_path: Path, option: str | None) -> None:
    directory = tmp_path / "topic-0"
    write_ours(directory)
    output = dump(directory, "--deep-iteration", *([option] if option else []))
    assert complaints(output) == []
    if option == "--index-sanity-check":
        assert output.count("passed sanity check.") >= 4
    if option is None:
        assert output.count("compresscodec: zstd") == 60
        assert len(re.findall(r"^\| offset: ", output, re.MULTILINE)) == 3000 + 120 + 6 + 1
        assert output.count("endTxnMarker: COMMIT") == output.count("endTxnMarker: ABORT") == 3
        assert re.findall(r"version: 0 producerId: 5 firstOffset: (\d+)", output) == ["3021", "3063", "3105"]
        assert re.search(r"producerId: 6 producerEpoch: 3 .*currentTxnFirstOffset: OptionalLong\[3126\]", output)


def test_kafka_reads_what_we_recovered(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    write_ours(directory)
    logs = sorted(directory.glob("*.log"))
    with logs[-1].open("r+b") as file:
        file.truncate(logs[-1].stat().st_size - 10)
    for path in directory.glob("*index"):
        path.write_bytes(b"\x55" * 100)
    config = log_config(internal_segment_bytes=60_000, index_interval_bytes=2048)
    log = Log.open(
        OsFileSystem(), str(directory), config, topic_partition=ids.TopicPartition("topic", 0), now_ms=NOW_MS
    )
    assert log.recovery.bytes_truncated > 0
    log.close()
    assert complaints(dump(directory, "--deep-iteration")) == []
    assert complaints(dump(directory, "--index-sanity-check")) == []


# --- Kafka's, opened by us


class Written:
    """The data directories that Kafka left, and what it was given to write."""

    def __init__(self, kafka: ApacheKafka, clean: Path, killed: Path, codecs: list[bytes], late: list[bytes]) -> None:
        self.kafka = kafka
        self.clean = clean
        self.killed = killed
        self.codecs = codecs
        self.late = late


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    root = tmp_path_factory.mktemp("apache-kafka")
    kafka = ApacheKafka(root)
    with kafka.running():
        codecs = produce_codecs(kafka)
        produce_transactions(kafka)
        kafka.tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", "perf", "--num-records", "5000", "--record-size", "500", "--throughput", "-1"),
            *("--transactional-id", "perf", "--transaction-duration-ms", "200"),
            *("--producer-props", f"bootstrap.servers={kafka.bootstrap}"),
        )
        kafka.stop()
        clean = shutil.copytree(kafka.data, root / "clean")
    with kafka.running():
        late = [b"late %d" % i for i in range(500)]
        produce(kafka, "codecs", late, {"compression.type": "lz4"})
        kafka.kill()
        killed = shutil.copytree(kafka.data, root / "killed")
    yield Written(kafka, clean, killed, codecs, late)


def produce(kafka: ApacheKafka, topic: str, values: list[bytes], config: dict[str, str | int | bool]) -> None:
    failed: list[str] = []

    def on_delivery(error: object, _: Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 20, "enable.idempotence": True, **config})
    for value in values:
        producer.produce(topic, value, key=value[:3], headers={"h": b"1"}, partition=0, on_delivery=on_delivery)
        producer.poll(0)
    producer.flush(60)
    assert failed == []


def produce_codecs(kafka: ApacheKafka) -> list[bytes]:
    expected = []
    for codec in CODECS:
        values = [b"%s %d " % (codec.encode(), i) + VALUE * 20 for i in range(PER_CODEC)]
        produce(kafka, "codecs", values, {"compression.type": codec})
        expected += values
    values = [b"plain %d" % i for i in range(PER_CODEC)]
    produce(kafka, "codecs", values, {"enable.idempotence": False, "acks": "1"})
    return expected + values


def produce_transactions(kafka: ApacheKafka) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
    producer.init_transactions(60)
    for round_number in range(6):
        producer.begin_transaction()
        for i in range(20):
            producer.produce("txn", b"%d/%d" % (round_number, i), partition=0)
        if round_number % 2:
            producer.flush(30)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def open_directory(path: Path) -> tuple[LogDir, dict[str, Log]]:
    directory = LogDir.open(
        OsFileSystem(), str(path), cluster_id=CLUSTER_ID, node_id=1, new_directory_id=UUID(int=1 << 100)
    )
    found = directory.scan()
    assert all(f.topic_id is not None for f in found)
    config = log_config(internal_segment_bytes=1 << 20)
    return directory, {str(f.topic_partition): directory.open_log(f, config, now_ms=NOW_MS) for f in found}


def read_all(log: Log) -> list[Record]:
    """Every record but control records, in order, each batch's CRC checked."""
    records = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20).data
        for position, header in iter_batches(data):
            check_crc(data, position, header)
            if header.last_offset >= offset and not header.is_control:
                records += list(iter_records(data, position, header))
            offset = max(offset, header.next_offset)
    return records


def read_committed(log: Log) -> list[bytes | None]:
    """As a read_committed consumer: what lies in an aborted transaction is left out."""
    aborted = log.aborted_transactions(0, log.log_end_offset)
    values = []
    for position, header in (pair for segment in log.segments for pair in iter_batches(segment_bytes(segment))):
        del position
        if header.is_control or any(
            t.producer_id == header.producer_id and t.first_offset <= header.base_offset < t.last_offset
            for t in aborted
        ):
            continue
        values.append(header)
    kept = {h.base_offset + i for h in values for i in range(h.record_count)}
    return [r.value for r in read_all(log) if r.offset in kept]


def segment_bytes(segment: object) -> bytes:
    file = segment.file()  # type: ignore[attr-defined]
    return bytes(file.read_at(0, file.size()))


@pytest.mark.parametrize("how", ["clean", "killed"])
def test_we_read_what_kafka_wrote(written: Written, how: str, tmp_path: Path) -> None:
    copy = shutil.copytree(getattr(written, how), tmp_path / "data")
    directory, logs = open_directory(copy)
    assert directory.clean_shutdown == (how == "clean")
    assert {"codecs-0", "txn-0", "perf-0", "__transaction_state-0"} <= set(logs)
    for log in logs.values():
        assert log.recovery.clean == (how == "clean")
        assert log.recovery.bytes_truncated == 0
    expected = written.codecs + (written.late if how == "killed" else [])
    assert [r.value for r in read_all(logs["codecs-0"])] == expected
    assert all(r.headers == (("h", b"1"),) for r in read_all(logs["codecs-0"]))
    assert len(logs["perf-0"].segments) > 1
    committed = [b"%d/%d" % (n, i) for n in (0, 2, 4) for i in range(20)]
    assert read_committed(logs["txn-0"]) == committed
    assert logs["txn-0"].last_stable_offset(logs["txn-0"].log_end_offset) == logs["txn-0"].log_end_offset
    assert len(read_all(logs["perf-0"])) == 5000
    assert len(logs["codecs-0"].producers) == len(CODECS) + (1 if how == "killed" else 0)
    assert logs["codecs-0"].latest_epoch is not None
    directory.close()
    for name in ("codecs-0", "txn-0", "perf-0"):
        assert complaints(dump(copy / name, "--deep-iteration")) == []


def test_kafka_goes_on_where_we_left_off(written: Written) -> None:
    """The same directory: written by Kafka, killed; opened, recovered and appended to by us; served by Kafka again."""
    kafka = written.kafka
    directory, logs = open_directory(kafka.data)
    log = logs["codecs-0"]
    epoch = log.latest_epoch
    assert epoch is not None
    before = len(read_all(log))
    for i in range(50):
        log.append_as_leader(batch(10, timestamp=NOW_MS, value=b"ours %d" % i), leader_epoch=epoch, now_ms=NOW_MS)
    end = log.log_end_offset
    directory.close()
    with kafka.running():
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "enable.partition.eof": False})
        consumer.assign([TopicPartition("codecs", 0, 0)])
        values: list[bytes | None] = []
        while len(values) < before + 500:
            messages = consumer.consume(1000, timeout=60)
            assert messages, f"Kafka served {len(values)} of {before + 500} records"
            assert [m.error() for m in messages if m.error() is not None] == []
            values += [m.value() for m in messages]
        assert consumer.get_watermark_offsets(TopicPartition("codecs", 0), timeout=30) == (0, end)
        consumer.close()
        kafka.stop()
    assert values[before:] == [b"ours %d" % i for i in range(50) for _ in range(10)]
    assert values[:before] == written.codecs + written.late
