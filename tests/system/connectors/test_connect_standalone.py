"""`barnabas connect standalone`: a file into a topic, and the topic through a transform into a table; killed once."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from barnabas.client.blocking import Admin
from barnabas.core.child_processes import start_child
from barnabas.core.properties import render_properties
from barnabas.testing.embedded import EmbeddedBroker
from tests.progress import wait_until

pytestmark = [pytest.mark.system, pytest.mark.spark]

PATIENCE_S = 600.0
"""A busy machine may need minutes to start Spark, in which nothing here moves."""
_READY = re.compile(r"barnabas connect ready: 2 connectors: lines, orders")


@contextmanager
def standalone(*files: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has started its connectors."""
    command = [sys.executable, "-m", "barnabas", "connect", "standalone", *map(str, files)]
    process = start_child(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        if not any(_READY.search(line) for line in process.stdout):
            pytest.fail("the worker ended before it was ready")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


def append(path: Path, numbers: range) -> None:
    with path.open("a") as file:
        for number in numbers:
            file.write(json.dumps({"id": number, "card": f"4711-{number}", "secret": "x"}) + "\n")


def test_a_file_gets_into_a_table_by_configuration_only_and_once_in_spite_of_a_kill(tmp_path: Path) -> None:
    lines, table = tmp_path / "lines.json", tmp_path / "table"
    worker, source, sink = tmp_path / "worker.properties", tmp_path / "lines.properties", tmp_path / "orders.json"
    append(lines, range(1_000))
    source.write_text(
        render_properties(
            {
                "name": "lines",
                "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
                "file": str(lines),
                "topic": "orders",
                "value.converter": "org.apache.kafka.connect.storage.StringConverter",
                "maxBytesPerTrigger": "8k",
                "trigger.interval.ms": "100",
            }
        )
    )
    config = {
        "connector.class": "DeltaSink",
        "topics": "orders",
        "path": str(table),
        "transforms": "drop,mask",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.drop.exclude": "secret",
        "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
        "transforms.mask.fields": "card",
        "transforms.mask.replacement": "****",
        "trigger.interval.ms": "100",
    }
    sink.write_text(json.dumps({"name": "orders", "config": config}))
    with EmbeddedBroker({"transaction.two.phase.commit.enable": "true"}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 2, 1)
        worker.write_text(
            render_properties(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "offset.storage.file.filename": str(tmp_path / "offsets"),
                    "key.converter": "StringConverter",
                    "value.converter": "JsonConverter",
                    "value.converter.schemas.enable": "false",
                    "spark.master": "local[2]",
                    "spark.sql.shuffle.partitions": "2",
                }
            )
        )

        def rows() -> int:
            return DeltaTable(table).to_pyarrow_table().num_rows if DeltaTable.is_deltatable(str(table)) else 0

        with standalone(worker, source, sink) as process:
            wait_until(lambda: rows() > 0, "some rows are in the table", progress=rows, patience_s=PATIENCE_S)
            process.send_signal(signal.SIGKILL)
            process.wait()
        append(lines, range(1_000, 1_500))
        with standalone(worker, source, sink) as process:
            wait_until(lambda: rows() >= 1_500, "all rows are in the table", progress=rows, patience_s=PATIENCE_S)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    found = DeltaTable(table).to_pyarrow_table().select(["id", "card"]).sort_by("id").to_pylist()
    assert found == [{"id": number, "card": "****"} for number in range(1_500)]
    assert "secret" not in DeltaTable(table).schema().to_arrow().names
