"""Mirrors between two brokers: topics, configs, groups, both directions, restarts and losses."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client import AsyncAdmin, AsyncConsumer
from barnabas.client.values import AlterOp, ConfigChange, ConfigResource, OffsetAndMetadata
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.security.acls import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from barnabas.protocol.security.operations import AclOperation
from barnabas.spark.mirror.config.parsing import parse_mirror_config
from barnabas.spark.mirror.errors import MirrorDataLossError
from barnabas.spark.mirror.records import decode_heartbeat
from barnabas.spark.mirror.running.group_jobs import group_offsets
from barnabas.spark.mirror.running.lags import read_lags
from barnabas.spark.mirror.running.translating import read_checkpoints
from tests.system.mirror.mirrors import FIRST_MS, end_of, mirroring, produce, properties, read, until, values
from tests.system.mirror.plain_copier import PlainCopier

pytestmark = pytest.mark.system

_ONE_WAY = {"A->B.enabled": "true", "A->B.sync.group.offsets.enabled": "true"}


async def _commit(servers: str, group: str, partition: TopicPartition, offset: int) -> None:
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await admin.alter_group_offsets(group, {partition: OffsetAndMetadata(offset, "from the test")})


async def _committed(servers: str, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        try:
            return await group_offsets(admin, group)
        except KafkaError:
            return {}


def test_records_configs_partitions_and_groups_arrive(a: str, b: str, topic: str) -> None:
    async def scenario() -> None:
        group, copy = f"g-{topic}", f"A.{topic}"
        async with AsyncAdmin(bootstrap_servers=a) as admin:
            await admin.create_topic(topic, 2, 1, {"max.message.bytes": "65536", "min.insync.replicas": "1"})
        await produce(a, topic, [f"v{n}" for n in range(100)])
        await _commit(a, group, TopicPartition(topic, 0), 40)
        async with mirroring(a, b, {**_ONE_WAY, "topics": topic, "groups": group}) as service:

            async def arrived() -> bool:
                return await end_of(b, copy) == 100 and TopicPartition(copy, 0) in await _committed(b, group)

            await until(arrived, "the records and the group have arrived", service)
            original, copied = await read(a, topic), await read(b, copy)
            assert [record[2:8] for record in copied] == [record[2:8] for record in original]
            assert await _committed(b, group) == {TopicPartition(copy, 0): OffsetAndMetadata(40, "from the test", -1)}

            async with AsyncAdmin(bootstrap_servers=a) as source, AsyncAdmin(bootstrap_servers=b) as target:
                resource = ConfigResource.topic(copy)

                async def size_is(size: str) -> bool:
                    configs = (await target.describe_configs([resource]))[resource]
                    return isinstance(configs, dict) and configs["max.message.bytes"].value == size

                assert await size_is("65536")
                change = ConfigChange("max.message.bytes", "70000", AlterOp.SET)
                await source.incremental_alter_configs({ConfigResource.topic(topic): [change]})
                await source.create_partitions({topic: 3})
                await until(lambda: size_is("70000"), "the changed config has arrived", service)

                async def has_grown() -> bool:
                    return await end_of(b, copy, 2) == 0

                await until(has_grown, "the copy has three partitions", service)
            await produce(a, topic, ["late"], partition=2)

            async def late() -> bool:
                return await end_of(b, copy, 2) == 1

            await until(late, "a record of the new partition has arrived", service)

            async def no_lag() -> bool:
                (status,) = [found for found in service.status() if found.pair == "A->B"]
                return [lag.records for lag in status.lags if lag.partition.topic == topic] == [0, 0, 0]

            await until(no_lag, "the lag is zero", service)
        heartbeats = [decode_heartbeat(record.key, record.value) for record in await read(b, "heartbeats")]
        assert {(beat.source_alias, beat.target_alias) for beat in heartbeats} == {("A", "B")}

    asyncio.run(scenario())


def test_readers_get_their_acls_and_groups_with_members_are_left_alone(a: str, b: str, topic: str) -> None:
    async def scenario() -> None:
        group, copy = f"g-{topic}", f"A.{topic}"
        async with AsyncAdmin(bootstrap_servers=a) as admin:
            await admin.create_topic(topic, 1, 1)
            await admin.create_acls([_acl(topic, AclOperation.ALL), _acl(topic, AclOperation.WRITE)])
        await produce(a, topic, [f"v{n}" for n in range(20)])
        await _commit(a, group, TopicPartition(topic, 0), 10)
        given = {**_ONE_WAY, "topics": topic, "groups": group}
        pair = parse_mirror_config(properties(a, b, given)).pair("A", "B")
        assert pair is not None

        async def checkpoint_is(offset: int) -> bool:
            if await end_of(b, pair.checkpoints_topic) < 1:
                return False
            return [found.downstream for found in await read_checkpoints(pair, group)] == [offset]

        async def has_acls() -> bool:
            async with AsyncAdmin(bootstrap_servers=b) as admin:
                acls = await admin.describe_acls(AclBindingFilter(AclResourceType.TOPIC, copy))
            return acls == [_acl(copy, AclOperation.READ)]

        async def committed_is(offset: int) -> bool:
            found = (await _committed(b, group)).get(TopicPartition(copy, 0))
            return found is not None and found.offset == offset

        async with AsyncConsumer(bootstrap_servers=b, group_id=group, enable_auto_commit=False) as consumer:
            consumer.subscribe([copy])

            async def is_member() -> bool:
                await consumer.poll(timeout_ms=10)
                async with AsyncAdmin(bootstrap_servers=b) as admin:
                    found = (await admin.describe_groups([group]))[group]
                return not isinstance(found, KafkaError) and bool(found.members)

            await until(is_member, "the consumer is a member")
            async with mirroring(a, b, given, ["B"]) as service:
                await until(lambda: checkpoint_is(10), "the group has a checkpoint", service)
                await until(has_acls, "the ACLs have arrived", service)
                await _commit(a, group, TopicPartition(topic, 0), 15)
                # Between two rounds of checkpoints, there is one of group offsets.
                await until(lambda: checkpoint_is(15), "the group has a newer checkpoint", service)
                assert await is_member()
                assert await _committed(b, group) == {}
                await consumer.close()
                await until(lambda: committed_is(15), "the group without members has its offset", service)

    asyncio.run(scenario())


def _acl(topic: str, operation: AclOperation) -> AclBinding:
    allow = AclPermissionType.ALLOW
    return AclBinding(AclResourceType.TOPIC, topic, PatternType.LITERAL, "User:reader", "*", operation, allow)


def test_a_reset_to_a_time_finds_the_same_record_on_both_sides(a: str, b: str, topic: str) -> None:
    async def scenario() -> None:
        group, copy = f"g-{topic}", f"A.{topic}"
        async with AsyncAdmin(bootstrap_servers=a) as admin:
            await admin.create_topic(topic, 1, 1)
        await produce(a, topic, [f"v{n}" for n in range(50)])
        async with AsyncAdmin(bootstrap_servers=a) as admin:
            await admin.delete_records({TopicPartition(topic, 0): 10})  # so that offsets differ
        async with mirroring(a, b, {**_ONE_WAY, "topics": topic, "groups": group}) as service:

            async def arrived() -> bool:
                return await end_of(b, copy) == 40

            await until(arrived, "the records have arrived", service)
        found = []
        for servers, name in ((a, topic), (b, copy)):
            async with AsyncAdmin(bootstrap_servers=servers) as admin:
                tp = TopicPartition(name, 0)
                reset = (await admin.reset_group_offsets(f"{group}-reset", FIRST_MS + 10 * 25, partitions=[tp]))[tp]
                assert isinstance(reset, OffsetAndMetadata)
                records = await read(servers, name)
                found.append(next(record.value for record in records if record.offset == reset.offset))
        assert found == [b"v25", b"v25"]

    asyncio.run(scenario())


def test_both_directions_do_not_echo_and_groups_go_back(a: str, b: str, topic: str) -> None:
    async def scenario() -> None:
        group, copy = f"g-{topic}", f"A.{topic}"
        both = {
            "A->B.enabled": "true",
            "B->A.enabled": "true",
            "sync.group.offsets.enabled": "true",
            "topics": f".*{topic}",
            "groups": group,
        }
        for servers in (a, b):
            async with AsyncAdmin(bootstrap_servers=servers) as admin:
                await admin.create_topic(topic, 1, 1)
        await produce(a, topic, ["a1", "a2", "a3", "a4"])
        await produce(b, topic, ["b1"])
        async with mirroring(a, b, both) as service:

            async def arrived() -> bool:
                return (await end_of(b, copy), await end_of(a, f"B.{topic}")) == (4, 1)

            await until(arrived, "both directions have copied", service)
            # A consumer of A has failed over to B, has read the copy there, and goes back.
            await _commit(b, group, TopicPartition(copy, 0), 3)

            async def back() -> bool:
                return TopicPartition(topic, 0) in await _committed(a, group)

            await until(back, "the group's offset is back in A", service)
            assert (await _committed(a, group))[TopicPartition(topic, 0)].offset == 3
            pair = parse_mirror_config(properties(a, b, both)).pair("B", "A")
            assert pair is not None
            checkpoints = {found.partition.topic: found.downstream for found in await read_checkpoints(pair, group)}
            assert checkpoints[topic] == 3
        for servers in (a, b):
            async with AsyncAdmin(bootstrap_servers=servers) as admin:
                names = {listing.name for listing in await admin.list_topics()}
            assert not {name for name in names if name.endswith(topic)} - {topic, copy, f"B.{topic}"}
        assert values(await read(a, topic)) == ["a1", "a2", "a3", "a4"]

    asyncio.run(scenario())


def test_a_restart_goes_on_without_a_gap_or_a_repeat(a: str, b: str, topic: str) -> None:
    async def scenario() -> None:
        copy = f"A.{topic}"
        async with AsyncAdmin(bootstrap_servers=a) as admin:
            await admin.create_topic(topic, 1, 1)
        for round_number in range(3):
            await produce(a, topic, [f"{round_number}-{n}" for n in range(10)])
            async with mirroring(a, b, {"A->B.enabled": "true", "topics": topic}, ["B"]) as service:

                async def arrived(end: int = 10 * (round_number + 1)) -> bool:
                    return await end_of(b, copy) >= end

                await until(arrived, "the records have arrived", service)
        assert values(await read(b, copy)) == [f"{r}-{n}" for r in range(3) for n in range(10)]
        pair = parse_mirror_config(properties(a, b, {"A->B.enabled": "true", "topics": topic})).pair("A", "B")
        assert pair is not None
        lags, losses = await read_lags(pair, 0)
        assert [(lag.position, lag.records) for lag in lags if lag.partition.topic == topic] == [(30, 0)]
        assert losses == []

    asyncio.run(scenario())


def test_the_identity_policy_keeps_the_names(a: str, b: str, topic: str) -> None:
    async def scenario() -> None:
        async with AsyncAdmin(bootstrap_servers=a) as admin:
            await admin.create_topic(topic, 1, 1)
        await produce(a, topic, ["x"])
        identity = {"replication.policy.class": "IdentityReplicationPolicy", "A->B.enabled": "true", "topics": topic}
        async with mirroring(a, b, identity, ["B"]) as service:

            async def arrived() -> bool:
                return await end_of(b, topic) == 1

            await until(arrived, "the record has arrived", service)

    asyncio.run(scenario())


def test_what_was_deleted_before_it_was_copied_is_shown(a: str, b: str, topic: str) -> None:
    async def scenario() -> None:
        given = {"A->B.enabled": "true", "topics": topic}
        async with AsyncAdmin(bootstrap_servers=a) as admin:
            await admin.create_topic(topic, 1, 1)
            await produce(a, topic, [f"v{n}" for n in range(10)])
            async with mirroring(a, b, given, ["B"]) as service:

                async def arrived() -> bool:
                    return await end_of(b, f"A.{topic}") == 10

                await until(arrived, "the records have arrived", service)
            await produce(a, topic, [f"v{n}" for n in range(10, 20)])
            await admin.delete_records({TopicPartition(topic, 0): 15})
        pair = parse_mirror_config(properties(a, b, given)).pair("A", "B")
        assert pair is not None
        _, losses = await read_lags(pair, 0)
        assert [str(loss).partition(" were")[0] for loss in losses] == [f"5 offsets of {topic}-0"]

    asyncio.run(scenario())


def test_a_failed_copier_is_started_again_and_a_loss_ends_the_mirror(a: str, b: str, topic: str) -> None:
    async def scenario() -> None:
        async with AsyncAdmin(bootstrap_servers=a) as admin:
            await admin.create_topic(topic, 1, 1)
        given = {"A->B.enabled": "true", "topics": topic}
        copiers: list[PlainCopier] = []

        def new_copier() -> PlainCopier:
            copiers.append(PlainCopier())
            return copiers[-1]

        with pytest.raises(MirrorDataLossError, match="gone"):
            async with mirroring(a, b, given, ["B"], new_copier) as service:

                async def plans(count: int) -> bool:
                    return len(copiers[0].plans) == count

                await until(lambda: plans(1), "the copier has started", service)
                copiers[0].fail(RuntimeError("a task has failed"))
                await until(lambda: plans(2), "the copier has started again", service)
                (status,) = service.status()
                assert status.restarts == 1
                copiers[0].fail(MirrorDataLossError("records are gone"))

                async def stopped() -> bool:
                    return service.status()[0].state == "stopped"

                await until(stopped, "the mirror has ended", service)

    asyncio.run(scenario())
