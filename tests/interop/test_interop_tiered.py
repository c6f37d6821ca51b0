"""Apache Kafka's Java consumer reads a tiered topic from its start: records of the object store, and local ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from barnabas.testing.process import BrokerProcess
from tests.interop.jars import kafka_classpath
from tests.progress import flush, wait_until
from tests.system.tiered.archive import SEGMENT_BYTES, SETTINGS, object_files

pytestmark = pytest.mark.interop
RECORDS = 1_200


def test_a_java_consumer_reads_a_tiered_topic_from_its_start(tmp_path: Path) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    store = tmp_path / "store"
    store.mkdir()
    broker = BrokerProcess(tmp_path / "data", settings=[*SETTINGS, f"rsm.config.storage.root={store}"])
    broker.start()
    try:
        servers = broker.bootstrap_servers
        config = {
            "remote.storage.enable": "true",
            "segment.bytes": str(SEGMENT_BYTES),
            "local.retention.bytes": "1",
            "retention.ms": "-1",
        }
        topic = NewTopic("archive", num_partitions=1, replication_factor=1, config=config)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([topic])["archive"].result(60)
        producer = Producer({"bootstrap.servers": servers})
        written = [f"{number}:" + f"{number * 7919 % 100_003:06}" * 600 for number in range(RECORDS)]
        for number, value in enumerate(written):
            producer.produce("archive", key=str(number), value=value)
        flush(producer)
        local = broker.data_dir / "archive-0"
        wait_until(
            lambda: len(list(local.glob("*.log"))) == 1,
            "only the active segment is local",
            progress=lambda: sorted(path.name for path in local.glob("*.log")),
        )
        assert len(object_files(store, ".log")) >= 3
        command = [
            *("java", "-cp", kafka_classpath(), "org.apache.kafka.tools.consumer.ConsoleConsumer"),
            *("--bootstrap-server", servers, "--topic", "archive", "--from-beginning"),
            *("--max-messages", str(RECORDS), "--timeout-ms", "60000"),
            *("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        expected = [f"Offset:{number}\t{number}\t{value}" for number, value in enumerate(written)]
        assert done.stdout.splitlines() == expected
    finally:
        broker.stop()
