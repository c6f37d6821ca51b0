"""Whole mirrors whose records Spark copies: both directions at once, in one session."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.client import AsyncAdmin
from barnabas.client.values import OffsetAndMetadata
from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.config.parsing import parse_mirror_config
from barnabas.spark.mirror.copying.copier import SparkCopier
from barnabas.spark.mirror.running.spark_session import spark_copiers
from barnabas.spark.mirror.running.translating import read_checkpoints
from tests.system.mirror.mirrors import end_of, mirroring, produce, properties, read, until, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system


def test_two_directions_share_a_spark_session(
    spark: SparkSession, mirrored_servers: tuple[str, str], topic: str
) -> None:
    a, b = mirrored_servers
    given = {"A->B.enabled": "true", "B->A.enabled": "true", "topics": f".*{topic}", "groups": f"g-{topic}"}
    pair = parse_mirror_config(properties(a, b, given)).pair("A", "B")
    assert pair is not None

    async def scenario() -> None:
        for servers, letter in ((a, "a"), (b, "b")):
            async with AsyncAdmin(bootstrap_servers=servers) as admin:
                await admin.create_topic(topic, 1, 1)
            await produce(servers, topic, [f"{letter}{n}" for n in range(30)])
        async with AsyncAdmin(bootstrap_servers=a) as admin:
            await admin.alter_group_offsets(f"g-{topic}", {TopicPartition(topic, 0): OffsetAndMetadata(20)})
        async with mirroring(a, b, given, (), lambda: SparkCopier(spark)) as service:

            async def arrived() -> bool:
                if await end_of(b, f"A.{topic}") < 30 or await end_of(a, f"B.{topic}") < 30:
                    return False
                return await end_of(b, pair.checkpoints_topic) > 0 and bool(await read_checkpoints(pair, f"g-{topic}"))

            await until(arrived, "both directions have copied, and the group has a checkpoint", service)
        copied = await read(b, f"A.{topic}")
        assert values(copied) == [f"a{n}" for n in range(30)]
        assert values(await read(a, f"B.{topic}")) == [f"b{n}" for n in range(30)]
        (checkpoint,) = await read_checkpoints(pair, f"g-{topic}")
        assert next(record.value for record in copied if record.offset >= checkpoint.downstream) == b"a20"

    asyncio.run(scenario())


def test_a_session_that_the_process_had_before_is_used_and_goes_on(
    spark: SparkSession, mirrored_servers: tuple[str, str]
) -> None:
    config = parse_mirror_config(properties(*mirrored_servers, {"A->B.enabled": "true"}))
    pair = config.pair("A", "B")
    assert pair is not None
    with spark_copiers(config, ["B"], None) as new_copier:
        assert isinstance(new_copier(pair), SparkCopier)
    assert spark.range(3).count() == 3
    assert Path(os.environ["JAVA_HOME"]).is_dir(), "the next session finds its Java"
