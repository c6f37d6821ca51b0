"""`barnabas backup` and `restore` end at any moment and are repeated: the result equals the backup.

Attempts in this process end after a request that changes the target, in turn after each. Real processes get kill -9 at
random moments; the failure of such a test prints the seed.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from barnabas.backup.errors import TargetNotEmptyError
from barnabas.backup.restoring.plan import Method
from barnabas.backup.store import BackupStore
from barnabas.backup.values import RunManifest
from barnabas.backup.verifying import verify_backup
from barnabas.client import AsyncProducer
from barnabas.client.admin import AsyncAdmin
from barnabas.client.admin.quotas import quota_entity
from barnabas.client.values import ConfigResource, NewTopic, OffsetAndMetadata
from barnabas.core.child_processes import start_child
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.security.acls import AclBinding, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.operations import AclOperation
from barnabas.server.broker.authorization.loading import STANDARD
from barnabas.testing import AsyncEmbeddedBroker
from tests.system.backup.backups import SMALL, back_up, committed_values, is_equal, restore, store_in, write

pytestmark = pytest.mark.system
SECURED = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("_schemas", 0)]
ALICE = quota_entity({"user": "alice"})
READS = AclBinding(
    AclResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW
)
CHANGES = ("Alter", "Create", "Delete", "Incremental", "OffsetCommit", "Produce")
"""How the names of requests begin that change a cluster."""


class KilledError(Exception):
    """Ends an attempt."""


async def fill(admin: AsyncAdmin, servers: str, count: int) -> None:
    """Records with a transaction, configs, a group, a quota, an ACL and schemas."""
    await admin.create_topics(
        [
            NewTopic("orders", 2, 1, {"retention.ms": "99999999999", "max.message.bytes": "2000000"}),
            NewTopic("_schemas", 1, 1, {"cleanup.policy": "compact"}),
            NewTopic("empty", 1, 1),
        ]
    )
    await write(admin, "orders", count, "order")
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        for number in range(3):
            await producer.send("_schemas", key=b'{"keytype":"SCHEMA"}', value=b'{"version":%d}' % number)
    async with AsyncProducer(bootstrap_servers=servers, transactional_id="t") as producer:
        await producer.init_transactions()
        for commit in (True, False):
            producer.begin_transaction()
            await producer.send("orders", value=b"in a transaction", partition=1)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
    await admin.alter_group_offsets(
        "readers", {PARTITIONS[0]: OffsetAndMetadata(7, "note"), PARTITIONS[1]: OffsetAndMetadata(9)}
    )
    await admin.alter_client_quotas({ALICE: {"producer_byte_rate": 1e6}})
    await admin.create_acls([READS])


async def facts(admin: AsyncAdmin, servers: str, *, by_link: bool) -> dict[str, Any]:
    """What must be the same in the target; without offsets of records, which Produce changes."""
    names = sorted(listing.name for listing in await admin.list_topics())
    described = await admin.describe_configs([ConfigResource.topic(name) for name in names])
    configs = {}
    for resource, found in described.items():
        assert not isinstance(found, KafkaError)
        configs[resource.name] = {name: entry.value for name, entry in found.items() if not entry.is_default}
    groups = await admin.list_group_offsets("readers")
    result: dict[str, Any] = {
        "configs": configs,
        "values": await committed_values(servers, *PARTITIONS),
        "offsets": {tp: (getattr(o, "offset", o), getattr(o, "metadata", "")) for tp, o in groups.items()},
        "quotas": dict(await admin.describe_client_quotas()),
        "acls": await admin.describe_acls(),
        "links": list(await admin.describe_links()),
    }
    if by_link:
        result["topic ids"] = {listing.name: listing.topic_id for listing in await admin.list_topics()}
        result["bounds"] = [
            [getattr(o, "offset", o) for o in (await admin.list_offsets(dict.fromkeys(PARTITIONS, special))).values()]
            for special in (-2, -1)
        ]
    return result


async def attempt(servers: str, store: BackupStore, method: Method, changes: int) -> bool:
    """One restore that ends as soon as it has made this number of changes. Returns whether it came to its own end."""
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        real = admin.cluster._post
        left = changes

        async def counted(connection: Any, request: Any, *arguments: Any) -> Any:
            nonlocal left
            if left <= 0:
                raise KilledError
            response = await real(connection, request, *arguments)
            left -= type(request).__name__.startswith(CHANGES)
            return response

        admin.cluster._post = counted  # type: ignore[method-assign]  # a kill has no other place to begin
        try:
            await restore(admin, store, method=method)
        except KilledError:
            return False
        return True


@pytest.mark.parametrize("method", [Method.LINK, Method.PRODUCE])
def test_a_restore_that_ends_after_any_change_is_repeated(tmp_path: Path, method: Method) -> None:
    by_link = method is Method.LINK

    async def scenario() -> None:
        store = store_in(tmp_path)
        async with AsyncEmbeddedBroker(config=SECURED) as source:
            servers = source.bootstrap_servers
            async with AsyncAdmin(bootstrap_servers=servers) as admin:
                await fill(admin, servers, 60)
                await back_up(admin, store)
                expected = await facts(admin, servers, by_link=by_link)
        async with AsyncEmbeddedBroker(config=SECURED) as target:
            servers = target.bootstrap_servers
            async with AsyncAdmin(bootstrap_servers=servers) as admin:
                attempts = 0
                try:
                    while not await attempt(servers, store, method, attempts + 1):
                        attempts += 1
                except TargetNotEmptyError as finished:  # the last change was the end of the restore
                    assert ("restored here before" in str(finished)) is by_link
                assert attempts > 5
                assert await facts(admin, servers, by_link=by_link) == expected
                if by_link:
                    assert await is_equal(admin, store)

    asyncio.run(scenario())


# -- kill -9 ---------------------------------------------------------------------------------------------------------


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return start_child(
        [sys.executable, "-m", "barnabas", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def killed_until_done(arguments: list[str], chance: random.Random, kills: int, longest_s: float) -> str:
    """Start a command again and again; kill the first processes at random moments. Returns what the last one says."""
    for count in range(kills + 1):
        process = start(*arguments)
        waiting = asyncio.create_task(asyncio.to_thread(process.communicate))
        if count < kills:
            await asyncio.wait([waiting], timeout=chance.uniform(0, longest_s))
            process.kill()
        _, errors = await asyncio.wait_for(waiting, 180)
        text = errors.decode()
        if process.returncode == 0 or "restored here before" in text:
            return text
        assert process.returncode < 0, text
    raise AssertionError("no attempt was left to its end")


async def check_kills(folder: Path, seed: int, count: int, kills: int, longest_s: float) -> None:
    chance = random.Random(seed)
    store = store_in(folder)
    async with AsyncEmbeddedBroker(config=SECURED) as source:
        servers = source.bootstrap_servers
        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            await fill(admin, servers, count)
            small = ["--object-mib", "1", "--parallel", "1"]
            backup = ["backup", "run", str(folder), "-b", servers, *small]
            await killed_until_done(backup, chance, kills, longest_s)
            check = await verify_backup(store)
            assert check.damage == (), f"seed {seed}"
            assert await is_equal(admin, store), f"seed {seed}"
            expected = await facts(admin, servers, by_link=True)
            run: RunManifest = await back_up(admin, store, SMALL)
            assert run.added_bytes == 0, f"seed {seed}: a record was doubled or lost"
    async with AsyncEmbeddedBroker(config=SECURED) as target:
        servers = target.bootstrap_servers
        await killed_until_done(["restore", str(folder), "-b", servers], chance, kills, longest_s)
        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            assert await facts(admin, servers, by_link=True) == expected, f"seed {seed}"
            assert await is_equal(admin, store), f"seed {seed}"


def test_killed_processes_are_repeated(tmp_path: Path) -> None:
    asyncio.run(check_kills(tmp_path, random.randrange(1 << 32), count=600, kills=1, longest_s=2))


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(8))
def test_processes_that_are_killed_again_and_again_are_repeated(tmp_path: Path, round_: int) -> None:
    seed = random.randrange(1 << 32)
    asyncio.run(check_kills(tmp_path, seed, count=20_000, kills=5, longest_s=4))
