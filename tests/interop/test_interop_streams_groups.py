"""kafka-streams-groups on Apache Kafka, beside Kafka's own tool; on a broker of Barnabas, which has no such groups.

The member of the group is a heartbeat of this test: the tools show the same for it as for a Kafka Streams application.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from barnabas import Admin
from barnabas.client import AsyncAdmin
from barnabas.client.cluster.coordinators import CoordinatorType
from barnabas.client.values import NewTopic
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages import streams_group_heartbeat as heartbeat
from barnabas.testing.process import BrokerProcess
from tests.interop.apache_kafka import ApacheKafka

pytestmark = pytest.mark.interop

GROUP = "app"
JAVA_TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"
TOOL = Path(sys.executable).parent / "kafka-streams-groups"


def run(bootstrap: str, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [TOOL, "--bootstrap-server", bootstrap, *arguments], capture_output=True, text=True, timeout=90
    )
    return done.returncode, done.stdout + done.stderr


def cells(text: str) -> list[list[str]]:
    """The words of the table in what a tool has printed."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    first = next((at for at, row in enumerate(rows) if row[0] == "GROUP"), 0)
    return rows[first:]


async def beat(admin: AsyncAdmin, epoch: int, member_id: str) -> heartbeat.StreamsGroupHeartbeatResponse:
    """Join (epoch 0), continue, or leave (epoch -1)."""
    part = heartbeat.Subtopology(
        subtopology_id="0",
        source_topics=["in"],
        source_topic_regex=[],
        state_changelog_topics=[
            heartbeat.TopicInfo(name="app-store-changelog", partitions=0, replication_factor=1, topic_configs=[])
        ],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    joining = epoch == 0
    request = heartbeat.StreamsGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if joining else -1,
        topology=heartbeat.Topology(epoch=0, subtopologies=[part]) if joining else None,
        active_tasks=[] if joining else None,
        standby_tasks=[] if joining else None,
        warmup_tasks=[] if joining else None,
        process_id="process-1" if joining else None,
        client_tags=[] if joining else None,
    )

    async def attempt() -> heartbeat.StreamsGroupHeartbeatResponse:
        response: heartbeat.StreamsGroupHeartbeatResponse = await admin.cluster.send_coordinator(
            CoordinatorType.GROUP, GROUP, request
        )
        return response

    return await admin.cluster.retrying("A heartbeat", attempt, deadline=admin.cluster.deadline(60_000))


async def join(bootstrap: str, member_id: str) -> None:
    """Become a member that Kafka has assigned tasks to."""
    async with AsyncAdmin(bootstrap_servers=bootstrap) as admin:
        response = await beat(admin, 0, member_id)
        for _ in range(300):
            loading = response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert response.error_code == 0 or loading, response
            if response.active_tasks:
                return
            await asyncio.sleep(0.1)  # between two heartbeats, as a member
            response = await beat(admin, 0 if loading else response.member_epoch, member_id)
        raise AssertionError(f"no task was assigned: {response}")


async def leave(bootstrap: str, member_id: str) -> None:
    async with AsyncAdmin(bootstrap_servers=bootstrap) as admin:
        await beat(admin, -1, member_id)


def test_the_tool_shows_and_resets_a_group_as_kafkas_own(tmp_path: Path) -> None:
    settings = ["group.streams.session.timeout.ms=60000", "group.streams.heartbeat.interval.ms=5000"]
    member_id = str(uuid.uuid4())
    with ApacheKafka(tmp_path, settings).running() as kafka, Admin(bootstrap_servers=kafka.bootstrap) as admin:
        admin.create_topics([NewTopic("in", 2, 1)])
        asyncio.run(join(kafka.bootstrap, member_id))
        for flags in (("--members",), ("--members", "--verbose"), ("--state", "--verbose"), ("--verbose",), ()):
            code, out = run(kafka.bootstrap, "--describe", "--group", GROUP, *flags)
            assert code == 0, out
            java = kafka.tool(JAVA_TOOL, "--bootstrap-server", kafka.bootstrap, "--describe", "--group", GROUP, *flags)
            assert cells(out)[0] == cells(java)[0], (flags, out, java)
            assert sorted(cells(out)[1:]) == sorted(cells(java)[1:]), (flags, out, java)
        code, out = run(kafka.bootstrap, "--list", "--state", "stable")
        assert (code, cells(out)) == (0, [["GROUP", "STATE"], [GROUP, "Stable"]])
        reset = ("--reset-offsets", "--group", GROUP, "--all-input-topics", "--to-latest")
        code, out = run(kafka.bootstrap, *reset, "--execute")
        assert code != 0 and "stop all instances of the application first" in out
        asyncio.run(leave(kafka.bootstrap, member_id))

        code, out = run(kafka.bootstrap, *reset, "--dry-run")
        assert (code, cells(out)[1:]) == (0, [[GROUP, "in", "0", "0"], [GROUP, "in", "1", "0"]])
        assert admin.list_group_offsets(GROUP) == {}
        assert run(kafka.bootstrap, *reset, "--execute", "--delete-all-internal-topics")[0] == 0
        assert set(admin.list_group_offsets(GROUP)) == {TopicPartition("in", 0), TopicPartition("in", 1)}
        assert "app-store-changelog" not in [topic.name for topic in admin.list_topics()]
        code, out = run(kafka.bootstrap, "--delete-offsets", "--group", GROUP, "--input-topic", "in")
        assert code == 0 and [row[2] for row in cells(out)[-2:]] == ["Successful"] * 2, out
        assert run(kafka.bootstrap, "--delete", "--group", GROUP)[0] == 0
        assert run(kafka.bootstrap, "--list") == (0, "")


def test_our_broker_has_no_streams_groups(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert run(broker.bootstrap_servers, "--list") == (0, "")
        code, out = run(broker.bootstrap_servers, "--describe", "--group", GROUP)
        assert code == 1 and "Barnabas has not" in out and "group.protocol=classic" in out
