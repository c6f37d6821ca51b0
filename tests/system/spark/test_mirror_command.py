"""`connect-mirror-maker` and `barnabas mirror`, with Spark, between two brokers."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.client import AsyncAdmin
from barnabas.client.values import OffsetAndMetadata
from barnabas.core.ids import TopicPartition
from barnabas.core.properties import render_properties
from barnabas.spark.mirror.config.parsing import parse_mirror_config
from barnabas.spark.mirror.running.translating import read_checkpoints
from barnabas.testing.embedded import EmbeddedBroker
from tests.system.mirror.mirrors import end_of, produce, properties, read, until, values

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.slow]

_TOOL = "from barnabas.cli.kafka.connect.mirror_maker import main; main()"


def _mirror(*arguments: str) -> str:
    command = [sys.executable, "-m", "barnabas", "mirror", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout


async def _run_until(file: Path, b: str, count: int) -> None:
    """Run the tool until so many records and a checkpoint are in B."""
    tool = subprocess.Popen([sys.executable, "-c", _TOOL, str(file), "--clusters", "B"], stdout=subprocess.PIPE)

    async def arrived() -> bool:
        assert tool.poll() is None, "the tool has ended"
        if await end_of(b, "A.orders") < count or await end_of(b, "A.checkpoints.internal") < 1:
            return False
        return len(await read(b, "A.orders")) >= count

    try:
        await until(arrived, "the records and the checkpoint have arrived")
    finally:
        tool.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(tool.wait, 60) == 0


def test_the_tool_copies_with_spark_and_shows_lag_and_checkpoints(tmp_path: Path) -> None:
    async def scenario(a: str, b: str) -> None:
        given = {"A->B.enabled": "true", "topics": "orders", "groups": "billing", "spark.master": "local[2]"}
        file = tmp_path / "mm2.properties"
        file.write_text(render_properties(properties(a, b, given)))
        pair = parse_mirror_config(properties(a, b, given)).pair("A", "B")
        assert pair is not None
        async with AsyncAdmin(bootstrap_servers=a) as admin:
            await admin.create_topic("orders", 1, 1)
            await produce(a, "orders", [f"v{n}" for n in range(50)])
            await admin.alter_group_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(20)})
        await _run_until(file, b, 50)
        await produce(a, "orders", [f"v{n}" for n in range(50, 100)])
        copied = await read(b, "A.orders")
        assert values(copied) == [f"v{n}" for n in range(50)]
        (checkpoint,) = await read_checkpoints(pair, "billing")
        assert next(record for record in copied if record.offset >= checkpoint.downstream).value == b"v20"
        (shown,) = json.loads(await asyncio.to_thread(_mirror, "status", str(file), "--json"))
        assert [(lag["topic"], lag["lag"]) for lag in shown["lags"] if lag["topic"] == "orders"] == [("orders", 50)]
        arguments = ("translate", str(file), "--group", "billing", "--source", "A", "--target", "B", "--json")
        translated = json.loads(await asyncio.to_thread(_mirror, *arguments))
        assert translated["offsets"] == [
            {"topic": "A.orders", "partition": 0, "offset": checkpoint.downstream, "upstream": 20}
        ]

    with EmbeddedBroker() as first, EmbeddedBroker() as second:
        asyncio.run(scenario(first.bootstrap_servers, second.bootstrap_servers))
