"""`barnabas mirror` between two brokers, with a copier that needs no Spark."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.cli.spark.mirror import mirror_status, mirror_translate
from barnabas.cli.spark.mirror_run import run_mirror
from barnabas.client import AsyncAdmin, AsyncProducer
from barnabas.client.values import NewTopic, OffsetAndMetadata
from barnabas.core.ids import TopicPartition
from barnabas.core.properties import render_properties
from barnabas.core.telemetry import log
from barnabas.spark.mirror.errors import MirrorDataLossError
from barnabas.spark.mirror.ports import CopiedRanges, CopyPlan
from barnabas.spark.mirror.records import Checkpoint, encode_checkpoint
from barnabas.spark.mirror.running import spark_session
from tests.system.mirror.mirrors import produce, properties
from tests.system.mirror.plain_copier import PlainCopier

pytestmark = pytest.mark.system


class _Losing(PlainCopier):
    """A copier that finds at once that records are lost."""

    def start(self, plan: CopyPlan, on_copied: Callable[[CopiedRanges], None]) -> None:
        super().start(plan, on_copied)
        self.fail(MirrorDataLossError("records are gone"))


class _Once(PlainCopier):
    """A copier after whose first records the process gets a SIGTERM."""

    def start(self, plan: CopyPlan, on_copied: Callable[[CopiedRanges], None]) -> None:
        def stop(batch: CopiedRanges) -> None:
            on_copied(batch)
            if any(copied.partition.topic.startswith("orders") for copied in batch.ranges):
                os.kill(os.getpid(), signal.SIGTERM)

        super().start(plan, stop)


def _with(monkeypatch: pytest.MonkeyPatch, kind: type[PlainCopier]) -> None:
    @contextmanager
    def copiers(*_: object) -> Iterator[Callable[[object], PlainCopier]]:
        yield lambda _: kind()

    monkeypatch.setattr(spark_session, "spark_copiers", copiers)
    monkeypatch.setattr(log, "configure_logging", lambda: None)  # pytest has the process's log


def _file(tmp_path: Path, a: str, b: str, topic: str) -> str:
    path = tmp_path / "mm2.properties"
    path.write_text(
        render_properties(properties(a, b, {"A->B.enabled": "true", "topics": topic, "groups": f"g-{topic}"}))
    )
    return str(path)


async def _prepare(a: str, topic: str) -> None:
    async with AsyncAdmin(bootstrap_servers=a) as admin:
        await admin.create_topic(topic, 1, 1)
        await admin.alter_group_offsets(f"g-{topic}", {TopicPartition(topic, 0): OffsetAndMetadata(4)})
    await produce(a, topic, [f"v{n}" for n in range(10)])


def test_a_loss_ends_the_command_with_one_line(
    a: str, b: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_prepare(a, topic))
    _with(monkeypatch, _Losing)
    with pytest.raises(SystemExit) as ended:
        run_mirror(_file(tmp_path, a, b, topic), ["B"])
    assert ended.value.code == 1
    shown = capfd.readouterr()
    assert "barnabas mirror ready: A->B" in shown.out
    assert "records are gone" in shown.err.splitlines()[-1]


def test_a_signal_ends_the_command_in_order_and_status_shows_the_lag(
    a: str, b: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_prepare(a, topic))
    _with(monkeypatch, _Once)
    file = _file(tmp_path, a, b, topic)
    run_mirror(file, ["B"])
    asyncio.run(produce(a, topic, ["late"]))
    capfd.readouterr()
    mirror_status(file, json=True)
    (shown,) = json.loads(capfd.readouterr().out)
    (lag,) = [lag for lag in shown["lags"] if lag["topic"] == topic]
    assert (shown["pair"], lag["position"], lag["sourceEnd"], lag["lag"]) == ("A->B", 10, 11, 1)
    assert lag["lagSeconds"] > 0
    mirror_status(file)
    assert topic in capfd.readouterr().out


def test_translate_needs_no_source_cluster(
    b: str, topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoints = [Checkpoint(group, TopicPartition(f"A.{topic}", 1), 4, 2, "m") for group in (f"g-{topic}", "other")]

    async def write() -> None:
        async with AsyncAdmin(bootstrap_servers=b) as admin, AsyncProducer(bootstrap_servers=b) as producer:
            await admin.create_topics([NewTopic("A.checkpoints.internal", 1, 1, {"cleanup.policy": "compact"})])
            for checkpoint in checkpoints:
                key, value = encode_checkpoint(checkpoint)
                await producer.send_and_wait("A.checkpoints.internal", value, key=key, partition=0)

    asyncio.run(write())
    file = _file(tmp_path, "127.0.0.1:1", b, topic)
    mirror_translate(file, group=f"g-{topic}", source="A", target="B", json=True)
    assert json.loads(capfd.readouterr().out) == {
        "group": f"g-{topic}",
        "source": "A",
        "target": "B",
        "offsets": [{"topic": f"A.{topic}", "partition": 1, "offset": 2, "upstream": 4}],
    }
    with pytest.raises(SystemExit):
        mirror_translate(file, group="g", source="A", target="C")
