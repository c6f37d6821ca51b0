"""Shell: restores the records of a run through a cluster link: the brokers mirror the run from this process.

    link ─► mirrors of all topics ─► configs ─► lag 0 ─► offsets of groups ─► stop the mirrors ─► delete the link

Each step may be repeated: an interrupted restore finds its link and its mirrors, and the brokers go on where they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from barnabas.backup.errors import BackupError
from barnabas.backup.restoring.plan import exact_patterns, link_name
from barnabas.backup.serving.answers import ServerAddress
from barnabas.backup.serving.batches import readable_end
from barnabas.backup.serving.server import Login, RunServer
from barnabas.backup.values import RunManifest
from barnabas.client.admin import AsyncAdmin
from barnabas.client.admin.links import FAILED, STOPPED, Link, LinkDescription, MirrorAction
from barnabas.client.links.cutover import failover
from barnabas.client.values import ConfigResource
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

_CHECK_S: Final = 0.2
_STALL_S: Final = 120.0
"""After this time without a byte, or of failure, the restore gives up. It can be continued."""
_MIRROR_NAME: Final = "mirror.name"
"""The topic config with the name of the link, as long as the link exists."""
_SETTINGS: Final = {
    "mirror.metadata.refresh.interval.ms": "2000",
    "mirror.fetch.max.bytes": str(8 * 1024 * 1024),
    "mirror.fetch.response.max.bytes": str(16 * 1024 * 1024),
    "mirror.fetch.wait.max.ms": "500",
}


async def open_link(admin: AsyncAdmin, run: RunManifest, address: ServerAddress, login: Login) -> None:
    """The link from the target to the server at `address`. Raises KafkaError if the brokers do not reach it."""
    servers = f"{address.host}:{address.port}"
    link = Link(link_name(run.id), servers, login.client_settings(), settings=_SETTINGS, source_cluster_id=run.id)
    try:
        if await find_link(admin, run) is None:
            await admin.create_link(link)
        else:
            await admin.alter_link(link)
    except KafkaError as error:
        raise KafkaError(
            error.code,
            f"{error} The brokers must be able to connect to this process at {servers}: --listen HOST:PORT sets the "
            "address, and a firewall must let the port through.",
        ) from error


async def find_link(admin: AsyncAdmin, run: RunManifest) -> LinkDescription | None:
    """The link of an earlier attempt to restore this run."""
    name = link_name(run.id)
    return (await admin.describe_links([name])).get(name)


async def begun_topics(admin: AsyncAdmin, run: RunManifest) -> frozenset[str] | None:
    """The topics that an earlier attempt to restore this run has created; None if there was none.

    The link's coordinator learns of a mirror when its leader begins; the topic's config names the link from the first
    moment on, also if the attempt was killed in between.
    """
    found = await find_link(admin, run)
    if found is None:
        return None
    names = {listing.name for listing in await admin.list_topics()}
    resources = [ConfigResource.topic(topic.name) for topic in run.topics if topic.name in names]
    described = await admin.describe_configs(resources, names=[_MIRROR_NAME]) if resources else {}
    configured = {
        resource.name
        for resource, configs in described.items()
        if not isinstance(configs, KafkaError)
        and _MIRROR_NAME in configs
        and configs[_MIRROR_NAME].value == link_name(run.id)
    }
    return frozenset(configured.union(mirror.topic for mirror in found.mirrors if mirror.topic is not None))


async def start_mirrors(admin: AsyncAdmin, run: RunManifest) -> None:
    """Make the topics mirrors, but those that an earlier attempt has stopped already. Raises BackupError."""
    found = await find_link(admin, run)
    known = {mirror.topic for mirror in found.mirrors} if found is not None else set()
    topics = [topic.name for topic in run.topics if topic.name not in known]
    if not topics:
        return
    changes = await admin.alter_mirrors(link_name(run.id), MirrorAction.START, exact_patterns(topics))
    refused = [f"{change.topic}: {change.error}" for change in changes if change.error is not None]
    missing = sorted(set(topics) - {change.topic for change in changes})
    if refused or missing:
        raise BackupError(f"Topics cannot be created: {'; '.join(refused) or ', '.join(missing)}")


class Mirroring:
    """Waits until the mirrors have all records of the run."""

    def __init__(self, admin: AsyncAdmin, run: RunManifest, server: RunServer, sent: Callable[[], int]) -> None:
        """`sent` is the number of bytes that the server has sent."""
        self._admin = admin
        self._run = run
        self._server = server
        self._sent = sent
        self._ends = {name: readable_end(partition) for name, partition in run.partitions()}

    async def wait(self) -> None:
        """Raises BackupError, KafkaError."""
        loop = asyncio.get_running_loop()
        moved_at, before = loop.time(), (-1, -1)
        while True:
            if self._server.failure is not None:
                raise self._server.failure
            waiting = await self._waiting()
            if not waiting:
                return
            now = (len(waiting), self._sent())
            if now != before:
                moved_at, before = loop.time(), now
            elif loop.time() - moved_at > _STALL_S:
                name, reason = next(iter(sorted(waiting.items())))
                raise BackupError(
                    f"Nothing was restored for {_STALL_S:.0f} s; {len(waiting)} partitions wait, for example {name}: "
                    f"{reason} Mend this, and repeat the command: it goes on where it was."
                )
            await asyncio.sleep(_CHECK_S)

    async def _waiting(self) -> Mapping[TopicPartition, str]:
        """The partitions that do not have all records yet, with the reason as far as it is known."""
        name = link_name(self._run.id)
        waiting = dict.fromkeys(self._ends, "it has no mirror yet.")
        found = await find_link(self._admin, self._run)
        for mirror in () if found is None else found.mirrors:
            if mirror.state == STOPPED and mirror.topic is not None:
                waiting.pop(TopicPartition(mirror.topic, mirror.partition), None)
        for status in await self._admin.describe_mirrors([name]):
            end = self._ends.get(status.partition)
            if end is None:
                continue
            if status.lag == 0 and status.source_high_watermark == end:
                waiting.pop(status.partition, None)
            else:
                waiting[status.partition] = status.reason or f"it is {status.state}, {status.lag} offsets behind."
                if status.state == FAILED and "records" in status.reason:
                    raise BackupError(f"{status.partition} cannot be restored: {status.reason}")
        return waiting


async def stop_mirrors(admin: AsyncAdmin, run: RunManifest) -> None:
    """Let the topics take writes. Raises KafkaError."""
    patterns = exact_patterns([topic.name for topic in run.topics])
    await failover(admin, link_name(run.id), patterns, timeout_s=_STALL_S)


async def close_link(admin: AsyncAdmin, run: RunManifest) -> None:
    await admin.delete_link(link_name(run.id))
