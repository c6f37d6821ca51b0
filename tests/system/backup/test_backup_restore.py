"""A backup of one embedded broker is restored into another one: the same bytes, offsets, transactions and groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.backup import cluster_state
from barnabas.backup.cluster_state import BackupTopics
from barnabas.backup.errors import BackupError, DamagedBackupError, NoSuchRunError, TargetNotEmptyError
from barnabas.backup.keeping import Retention
from barnabas.backup.maintaining import list_runs, prune
from barnabas.backup.manifest import manifest_name
from barnabas.backup.restoring.plan import Method
from barnabas.backup.restoring.restore import Restore, RestoreOptions
from barnabas.backup.serving.batches import RunBatches
from barnabas.backup.taking import BackupOptions
from barnabas.backup.values import RunManifest
from barnabas.backup.verifying import verify_backup
from barnabas.client import AsyncConsumer, AsyncProducer
from barnabas.client.admin import AsyncAdmin
from barnabas.client.admin.quotas import quota_entity
from barnabas.client.admin.share_groups import alter_share_group_offsets, list_share_group_offsets
from barnabas.client.admin.users import UserScramCredentialUpsertion
from barnabas.client.values import ConfigChange, ConfigResource, NewTopic, OffsetAndMetadata
from barnabas.core.errors import KafkaError
from barnabas.core.ids import NO_TOPIC_ID, TopicPartition, uuid_to_text
from barnabas.protocol.security.acls import AclBinding, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.operations import AclOperation
from barnabas.server.broker.authorization.loading import STANDARD
from barnabas.testing import AsyncEmbeddedBroker
from tests.system.backup.backups import (
    SMALL,
    back_up,
    committed_values,
    is_equal,
    restore,
    store_in,
    write,
)

pytestmark = pytest.mark.system
T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
ALICE = quota_entity({"user": "alice"})


class Side(AsyncAdmin):
    """An admin client that knows the address of its broker."""

    def __init__(self, broker: AsyncEmbeddedBroker) -> None:
        super().__init__(bootstrap_servers=broker.bootstrap_servers)
        self.servers = broker.bootstrap_servers


@asynccontextmanager
async def cluster() -> AsyncIterator[Side]:
    async with AsyncEmbeddedBroker() as broker, Side(broker) as admin:
        yield admin


async def fill(admin: Side) -> None:
    """Two partitions with committed, aborted and deleted records, a group, a quota and configs."""
    configs = {"retention.ms": "99999999999", "min.insync.replicas": "1", "segment.bytes": "1048576"}
    await admin.create_topics([NewTopic("orders", 2, 1, configs), NewTopic("empty", 1, 1), NewTopic("_schemas", 1, 1)])
    await write(admin, "orders", 400, "first")
    await write(admin, "_schemas", 3, "schema", 1)
    async with AsyncProducer(bootstrap_servers=admin.servers, transactional_id="t") as producer:
        await producer.init_transactions()
        for commit in (True, False):
            producer.begin_transaction()
            for number in range(4):
                await producer.send_and_wait("orders", value=f"{commit}-{number}".encode(), partition=number % 2)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
    await admin.delete_records({T1: 17})
    await admin.alter_group_offsets("readers", {T0: OffsetAndMetadata(150, "note"), T1: 203})
    await admin.alter_client_quotas({ALICE: {"producer_byte_rate": 1e6}})


async def bounds(admin: Side) -> list[tuple[int, int]]:
    starts, ends = await _offsets(admin, -2), await _offsets(admin, -1)
    return list(zip(starts, ends, strict=True))


async def _offsets(admin: Side, special: int) -> list[int]:
    found = await admin.list_offsets({T0: special, T1: special})
    return [getattr(answer, "offset", -9) for answer in found.values()]


def test_an_empty_cluster_becomes_the_one_that_was_backed_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = store_in(tmp_path)
        async with cluster() as source:
            await fill(source)
            first = await back_up(source, store)
            assert (first.base, first.notes, len(list(first.objects())) > 5) == (None, (), True)
            await write(source, "orders", 40, "second")
            second = await back_up(source, store)
            assert second.base == first.id
            assert 0 < second.added_bytes < first.added_bytes
            unchanged = await back_up(source, store)
            assert (unchanged.added_bytes, unchanged.size) == (0, second.size)
            there = await bounds(source)
            ids = {topic.name: topic.topic_id for topic in await source.list_topics()}
            values = await committed_values(source.servers, T0, T1)
            assert await is_equal(source, store)
        async with cluster() as target:
            report = await restore(target, store)
            assert (report.method, report.topics, report.groups) == (Method.LINK, 3, 1)
            assert await is_equal(target, store)
            assert await bounds(target) == there
            assert {topic.name: topic.topic_id for topic in await target.list_topics()} == ids
            assert await committed_values(target.servers, T0, T1) == values
            await check_settings(target)
            await check_that_work_goes_on(target, there)
            with pytest.raises(TargetNotEmptyError, match="topics _schemas, empty, orders"):
                await restore(target, store)
        async with cluster() as target:  # the state at the first run
            await restore(target, store, first.id)
            assert await is_equal(target, store, first.id)
            assert (await bounds(target))[0][1] == there[0][1] - 20

    asyncio.run(scenario())


async def check_settings(target: Side) -> None:
    configs = (await target.describe_configs([ConfigResource.topic("orders")]))[ConfigResource.topic("orders")]
    assert not isinstance(configs, KafkaError)
    assert {name: configs[name].value for name in ("retention.ms", "min.insync.replicas")} == {
        "retention.ms": "99999999999",
        "min.insync.replicas": "1",
    }
    assert (await target.describe_client_quotas())[ALICE] == {"producer_byte_rate": 1e6}
    assert not await target.describe_links()
    offsets = await target.list_group_offsets("readers")
    assert {name: getattr(found, "offset", None) for name, found in offsets.items()} == {T0: 150, T1: 203}
    assert getattr(offsets[T0], "metadata", None) == "note"


async def check_that_work_goes_on(target: Side, before: list[tuple[int, int]]) -> None:
    """New records are appended at the end, a transaction commits, and the group goes on at its place."""
    async with AsyncProducer(bootstrap_servers=target.servers, transactional_id="t") as producer:
        await producer.init_transactions()
        producer.begin_transaction()
        sent = await producer.send_and_wait("orders", value=b"new", partition=0)
        assert sent.offset == before[0][1]
        await producer.commit_transaction()
    settings = {
        "bootstrap.servers": target.servers,
        "group.id": "readers",
    }
    async with AsyncConsumer(settings | {"auto.offset.reset": "none"}) as consumer:
        consumer.subscribe(["orders"])
        firsts: dict[int, int] = {}
        while len(firsts) < 2:
            for record in await consumer.poll(1000):
                firsts.setdefault(record.partition, record.offset)
    assert firsts == {0: 150, 1: 203}


def test_by_produce_the_committed_records_have_new_offsets(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = store_in(tmp_path)
        async with cluster() as source:
            await fill(source)
            await source.incremental_alter_configs(
                {ConfigResource.topic("_schemas"): [ConfigChange("cleanup.policy", "compact")]}
            )
            await back_up(source, store)
            values = await committed_values(source.servers, T0, T1)
        async with cluster() as target:
            report = await restore(target, store, method=Method.PRODUCE)
            assert report.method is Method.PRODUCE
            assert any("Offsets" in note for note in report.notes)
            assert await committed_values(target.servers, T0, T1) == values
            assert await bounds(target) == [(0, len(values[0])), (0, len(values[1]))]
            offsets = await target.list_group_offsets("readers")
            # In partition 1, the offsets from 17 on begin at 0; 200 records, two committed, a marker, two aborted.
            assert {name: getattr(found, "offset", None) for name, found in offsets.items()} == {T0: 150, T1: 185}
            described = await target.describe_configs([ConfigResource.topic("_schemas")])
            configs = described[ConfigResource.topic("_schemas")]
            assert not isinstance(configs, KafkaError)
            assert (configs["cleanup.policy"].value, configs["max.message.bytes"].is_default) == ("compact", True)
            assert {topic.name for topic in await target.list_topics()} == {"orders", "empty", "_schemas"}

    asyncio.run(scenario())


class _Failing(RunBatches):
    """Loads a number of objects, and then fails."""

    left = 3

    async def load(self, stored):  # type: ignore[no-untyped-def]  # the signature is that of RunBatches
        if _Failing.left <= 0:
            raise DamagedBackupError("the disk of the backup is gone")
        _Failing.left -= 1
        return await super().load(stored)


@pytest.mark.parametrize("method", [Method.LINK, Method.PRODUCE])
def test_an_interrupted_restore_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Method) -> None:
    module = "barnabas.backup.serving.server" if method is Method.LINK else "barnabas.backup.restoring.by_produce"

    async def scenario() -> None:
        store = store_in(tmp_path)
        async with cluster() as source:
            await fill(source)
            await back_up(source, store)
            values = await committed_values(source.servers, T0, T1)
        async with cluster() as target:
            with monkeypatch.context() as patched:
                patched.setattr(f"{module}.RunBatches", _Failing)
                with pytest.raises(DamagedBackupError, match="is gone"):
                    await restore(target, store, method=method)
            assert {topic.name for topic in await target.list_topics()} >= {"orders"}
            await restore(target, store, method=method)
            assert await committed_values(target.servers, T0, T1) == values
            if method is Method.LINK:
                assert await is_equal(target, store)

    _Failing.left = 3
    asyncio.run(scenario())


def test_single_topics_are_restored_beside_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = store_in(tmp_path)
        async with cluster() as source:
            await fill(source)
            run = await back_up(source, store)
            await source.delete_topics(["orders"])
            options = RestoreOptions(BackupTopics(("orders",)))
            listed = await source.list_topics()
            tried = await Restore(source, store, run, replace(options, dry_run=True)).run()
            assert (tried.topics, await source.list_topics()) == (1, listed)
            report = await Restore(source, store, run, options).run()
            assert (report.topics, report.quotas) == (1, 0)
            assert await is_equal(source, store)
            with pytest.raises(TargetNotEmptyError, match="topic orders"):
                await Restore(source, store, run, options).run()

    asyncio.run(scenario())


def test_damage_is_found_and_nothing_is_restored(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = store_in(tmp_path)
        async with cluster() as source:
            await fill(source)
            good = await back_up(source, store)
            await write(source, "orders", 40, "second")
            run = await back_up(source, store)
        names = sorted({stored.name for stored in run.objects()} - {stored.name for stored in good.objects()})
        changed, missing = tmp_path / names[0], tmp_path / names[1]
        data = bytearray(changed.read_bytes())
        data[8] ^= 1  # the length of a batch: no CRC covers it
        changed.write_bytes(data)
        check = await verify_backup(store)
        assert [(one.name, one.runs) for one in check.damage] == [(names[0], (run.id,))]
        async with cluster() as target:
            with pytest.raises(DamagedBackupError, match=r"checksum is wrong"):
                await restore(target, store)
            await target.delete_topics(["orders", "empty", "_schemas"])
            await target.delete_link(f"restore-{run.id}")
            missing.unlink()
            with pytest.raises(DamagedBackupError, match="is missing"):
                await restore(target, store)
            assert await target.list_topics() == []
            (tmp_path / manifest_name(run.id)).write_bytes(b"{}")
            assert {one.name for one in (await verify_backup(store)).damage} == {manifest_name(run.id)}
            with pytest.raises(DamagedBackupError, match="Use another run"):
                await restore(target, store)
            await restore(target, store, good.id)
            assert await is_equal(target, store, good.id)

    asyncio.run(scenario())


def test_half_a_run_is_continued_and_pruned(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = store_in(tmp_path)
        async with cluster() as source:
            await fill(source)
            whole = await back_up(source, store)
            (tmp_path / manifest_name(whole.id)).unlink()
            with pytest.raises(NoSuchRunError, match="no complete run"):
                await restore(source, store)
            assert (await verify_backup(store)).leftovers == len(list(whole.objects()))
            await store.save(replace(whole, complete=False))  # as if the run had been killed at its end
            left = next(iter(whole.objects())).name + ".upload"
            (tmp_path / left).write_bytes(b"what an interrupted put has left")
            again = await back_up(source, store)
            assert (again.base, again.added_bytes) == (whole.id, 0)
            assert [one.id for one in await list_runs(store) if isinstance(one, RunManifest)] == [again.id]
            full = await back_up(source, store, replace(SMALL, full=True))
            assert (full.base, full.size) == (None, whole.size)
            pruned = await prune(store, Retention(last=1), full.started_ms + 1, leftovers_ms=0)
            assert (pruned.runs, pruned.kept, pruned.size) == ((again.id,), (full.id,), whole.size + 32)
            assert {found.name async for found in store.objects()} == {stored.name for stored in full.objects()}
            assert not (await verify_backup(store)).damage

    asyncio.run(scenario())


@pytest.mark.parametrize("count", [6, 40])
def test_another_topic_of_the_name_and_another_cluster_are_noticed(tmp_path: Path, count: int) -> None:
    """The other topic is shorter, or longer, than what was backed up. Both runs can be restored."""

    async def scenario() -> None:
        store = store_in(tmp_path)
        async with cluster() as source:
            await source.create_topic("orders", 2, 1)
            await write(source, "orders", 20, "first")
            first = await back_up(source, store)
            old = await committed_values(source.servers, T0, T1)
            await source.delete_topics(["orders"])
            await source.create_topic("orders", 2, 1)
            await write(source, "orders", count, "other")
            run = await back_up(source, store, BackupOptions())
            (topic,) = run.topics
            (listed,) = await source.list_topics()
            assert topic.topic_id == uuid_to_text(listed.topic_id)
            assert "deleted and created again" in run.notes[0]
            assert await is_equal(source, store)
            new = await committed_values(source.servers, T0, T1)
        for one, values in ((first, old), (run, new)):
            async with cluster() as target:
                await restore(target, store, one.id)
                assert await committed_values(target.servers, T0, T1) == values
        async with cluster() as other:
            with pytest.raises(BackupError, match="is a backup of cluster"):
                await back_up(other, store)

    asyncio.run(scenario())


@pytest.mark.parametrize("count", [6, 40])
def test_a_topic_that_is_created_again_during_a_run_is_not_taken_for_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    read_logs = cluster_state.read_logs

    async def slowly(admin: AsyncAdmin, *rest: Any) -> Any:
        found = await read_logs(admin, *rest)
        if replaces.pop():
            await admin.delete_topics(["orders"])
            await admin.create_topic("orders", 2, 1)
            await write(admin, "orders", count, "other")
        return found

    monkeypatch.setattr(cluster_state, "read_logs", slowly)
    replaces = [False, True]

    async def scenario() -> None:
        store = store_in(tmp_path)
        async with cluster() as source:
            await source.create_topic("orders", 2, 1)
            await write(source, "orders", 20, "first")
            (before,) = await source.list_topics()
            with pytest.raises(BackupError, match="orders was deleted and created again during the run") as failure:
                await back_up(source, store)
            (after,) = await source.list_topics()
            assert f"id {uuid_to_text(before.topic_id)}, and has {uuid_to_text(after.topic_id)} now" in str(
                failure.value
            )
            await back_up(source, store)
            assert await is_equal(source, store)

    asyncio.run(scenario())


def test_rights_holes_and_share_groups_are_restored(tmp_path: Path) -> None:
    secured = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
    acl = AclBinding(
        AclResourceType.TOPIC,
        "orders",
        PatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    quick = {"cleanup.policy": "compact", "segment.bytes": "1048576"}

    async def scenario() -> None:
        store = store_in(tmp_path)
        async with AsyncEmbeddedBroker(config=secured) as broker, Side(broker) as source:
            await source.create_topics([NewTopic("orders", 2, 1, quick)])
            async with AsyncProducer(bootstrap_servers=source.servers, batch_size=500) as producer:
                for number in range(300):
                    await producer.send("orders", key=b"%d" % (number % 7), value=b"%d" % number * 9, partition=0)
            while len((await committed_values(source.servers, T0))[0]) == 300:  # the cleaner may be at work elsewhere
                compacted = await source.compact([T0], roll=True, force=True)
                assert not isinstance(compacted[T0], KafkaError), compacted
            await source.create_acls([acl])
            await source.alter_user_scram_credentials(
                [UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", password="secret")]
            )
            deadline = source.cluster.deadline()
            await alter_share_group_offsets(source.cluster, "workers", {T0: 250}, deadline=deadline)
            run = await back_up(source, store)
            assert run.acls is not None and run.users is not None
            values = await committed_values(source.servers, T0)
            assert len(values[0]) < 300
        async with AsyncEmbeddedBroker(config=secured) as broker, Side(broker) as target:
            report = await restore(target, store)
            assert await is_equal(target, store)
            assert await committed_values(target.servers, T0) == values
            assert await target.describe_acls() == [acl]
            assert [note for note in report.notes if "alice" in note]
            shares = await list_share_group_offsets(target.cluster, "workers", deadline=target.cluster.deadline())
            assert getattr(shares[T0], "start_offset", None) == 250
        async with cluster() as open_to_all:
            report = await restore(open_to_all, store)
            assert any("no authorizer" in note for note in report.notes)

    asyncio.run(scenario())


def test_topics_without_ids_keep_their_offsets(tmp_path: Path) -> None:
    """Brokers before Kafka 2.8 have no topic ids: the target gives new ones."""

    async def scenario() -> None:
        store = store_in(tmp_path)
        async with cluster() as source:
            await fill(source)
            run = await back_up(source, store)
            there = await bounds(source)
        old = replace(run, topics=tuple(replace(topic, topic_id=uuid_to_text(NO_TOPIC_ID)) for topic in run.topics))
        await store.save(old)
        async with cluster() as target:
            assert (await restore(target, store)).method is Method.LINK
            assert await is_equal(target, store)
            assert await bounds(target) == there

    asyncio.run(scenario())
