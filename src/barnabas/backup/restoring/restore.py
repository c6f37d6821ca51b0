"""Shell: restores a run: checks the backup and the target, then writes settings, records and offsets.

Whatever would overwrite something is found before the first change. Offsets of groups are committed before the topics
take writes, so that no consumer can be faster.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from barnabas.backup.cluster_state import BackupTopics
from barnabas.backup.errors import BackupError, DamagedBackupError, TargetNotEmptyError
from barnabas.backup.restoring import by_link, plan
from barnabas.backup.restoring.by_produce import ProduceRestore
from barnabas.backup.restoring.plan import Method, TargetFacts
from barnabas.backup.serving.answers import ServerAddress
from barnabas.backup.serving.batches import readable_end
from barnabas.backup.serving.server import new_login, serving
from barnabas.backup.store import BackupStore
from barnabas.backup.values import BackedUpOffset, GroupBackup, RunManifest, TopicBackup
from barnabas.client.admin import AsyncAdmin
from barnabas.client.admin.share_groups import alter_share_group_offsets, list_share_group_offsets
from barnabas.client.errors import UnsupportedApiError
from barnabas.client.values import AlterOp, ConfigChange, ConfigResource, NewTopic, OffsetAndMetadata
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_TOPIC_ID, TopicPartition, uuid_to_text
from barnabas.core.objects.errors import ObjectMissingError

_CHECKS_AT_ONCE: Final = 16
_WHILE_PRODUCING: Final = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "2147483647",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
"""Configs with which a topic takes every batch as it is, and keeps it."""


class RestoreOptions(Struct, frozen=True):
    """What is restored, and how."""

    selection: BackupTopics = BackupTopics()
    method: Method | None = None
    """None: by link if the target can, else by Produce."""
    listen: ServerAddress | None = None
    """Where brokers connect to; None: a free port of the address from which this machine reaches the target."""
    dry_run: bool = False


class RestoreReport(Struct, frozen=True):
    """What was restored. `notes` are sentences about what is not as it was, or has to be done now."""

    run: str
    method: Method
    topics: int
    partitions: int
    bytes_sent: int
    groups: int
    acls: int
    quotas: int
    notes: tuple[str, ...] = field(default=())


class Restore:
    """Restores a run into the cluster of `admin`. `on_sent` gets the number of bytes of records sent so far."""

    def __init__(
        self,
        admin: AsyncAdmin,
        store: BackupStore,
        run: RunManifest,
        options: RestoreOptions,
        on_sent: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._admin = admin
        self._store = store
        self._whole = options.selection == BackupTopics()
        self._run = plan.select(run, options.selection)
        self._options = options
        self._on_sent = on_sent
        self._sent = 0
        self._notes: list[str] = list(run.notes)

    @property
    def size(self) -> int:
        """The bytes of records to restore."""
        return self._run.size

    async def run(self) -> RestoreReport:
        """Raises TargetNotEmptyError, DamagedBackupError, BackupError, KafkaError."""
        run = self._run
        await self._check_objects()
        method = await self._method()
        begun = await self._begun(method)
        found = plan.conflicts(run, await self._facts(begun), whole=self._whole)
        if found:
            advice = (
                "Restore into an empty cluster, or single topics with --topics."
                if self._whole
                else "Delete what is in the way, or leave it out with --topics and --exclude."
            )
            if await self._has_topics_of_run():
                advice = (
                    "Its topics have the ids of the run: the run was restored here before, or comes from here. "
                    "`barnabas verify --cluster` compares them."
                )
            raise TargetNotEmptyError(
                f"Run {run.id} cannot be restored into this cluster: {'; '.join(found)}. Nothing was changed. {advice}"
            )
        if not self._options.dry_run:
            await self._settings()
            if method is Method.LINK:
                await self._by_link()
            else:
                await self._by_produce(begun=begun is not None)
        self._note_users()
        return RestoreReport(
            run.id, method, len(run.topics), sum(len(topic.partitions) for topic in run.topics), self._sent,
            len(run.groups), len(run.acls or ()), len(run.quotas or ()), tuple(self._notes),
        )  # fmt: skip

    # -- checks --------------------------------------------------------------------------------------------------

    async def _check_objects(self) -> None:
        """Every object is there, in its size. The bytes are checked when they are read."""
        limit = asyncio.Semaphore(_CHECKS_AT_ONCE)

        async def check(name: str, expected: int) -> str:
            async with limit:
                try:
                    size = await self._store.size(name)
                except ObjectMissingError:
                    return f"{name} is missing"
                return "" if size == expected else f"{name} has {size} bytes instead of {expected}"

        found = await asyncio.gather(*(check(stored.name, stored.size) for stored in self._run.objects()))
        damaged = [text for text in found if text]
        if damaged:
            raise DamagedBackupError(
                f"Run {self._run.id} is damaged: {damaged[0]}{f' ({len(damaged)} objects)' if damaged[1:] else ''}. "
                "Nothing was changed. `barnabas verify` shows all; restore another run with --at, or leave the topics "
                "out with --exclude."
            )

    async def _method(self) -> Method:
        if self._options.method is Method.PRODUCE:
            return Method.PRODUCE
        try:
            await self._admin.describe_links([plan.link_name(self._run.id)])
        except UnsupportedApiError as error:
            if self._options.method is Method.LINK:
                raise BackupError("The target has no cluster links: it is not Barnabas. Use --by produce.") from error
            return Method.PRODUCE
        return Method.LINK

    async def _begun(self, method: Method) -> frozenset[str] | None:
        """The topics that an earlier attempt of this restore has created; None if there was none."""
        if method is Method.LINK:
            return await by_link.begun_topics(self._admin, self._run)
        names = {listing.name for listing in await self._admin.list_topics()}
        marker = plan.link_name(self._run.id)
        return frozenset({*(topic.name for topic in self._run.topics), marker}) if marker in names else None

    async def _has_topics_of_run(self) -> bool:
        """Whether all topics are there already, with their ids: an attempt that was killed at its very end has left no
        link."""
        ids = {topic.name: topic.topic_id for topic in self._run.topics}
        listed = {topic.name: uuid_to_text(topic.topic_id) for topic in await self._admin.list_topics()}
        return uuid_to_text(NO_TOPIC_ID) not in ids.values() and ids.items() <= listed.items()

    async def _facts(self, begun: frozenset[str] | None) -> TargetFacts:
        admin = self._admin
        topics = {t.name for t in await admin.list_topics() if not t.name.startswith("__")} - (begun or set())
        present = {listing.group_id for listing in await admin.list_groups()}
        groups: dict[str, Mapping[TopicPartition, int]] = {}
        for group in self._run.groups if begun is None else ():
            if group.group_id in present:
                groups[group.group_id] = await self._present(group)
        quotas = await admin.describe_client_quotas() if self._run.quotas else {}
        return TargetFacts(frozenset(topics), groups, quotas)

    # -- settings ------------------------------------------------------------------------------------------------

    async def _settings(self) -> None:
        """Quotas and ACLs come before the records, so that no user may do more than before, or faster."""
        run, admin = self._run, self._admin
        quotas = await admin.alter_client_quotas(
            {plan.entity_of(quota): dict(quota.quotas) for quota in run.quotas or ()}
        )
        _raise_first(quotas)
        if run.acls:
            try:
                _raise_first(await admin.create_acls([plan.binding_of(acl) for acl in run.acls]))
            except KafkaError as error:
                if error.code is not ErrorCode.SECURITY_DISABLED:
                    raise
                self._notes.append(
                    f"The target has no authorizer: {len(run.acls)} ACLs were not restored. Enable one before "
                    "a restore, or create the ACLs by hand."
                )

    async def _set_configs(self, topic: TopicBackup, temporary: Sequence[str] = ()) -> None:
        """Set the topic's configs, and remove the temporary ones that it does not have."""
        configs, left_out = plan.configs_to_set(topic.configs)
        if left_out:
            self._notes.append(f"Topic {topic.name}: not restored: {', '.join(left_out)}.")
        changes = [ConfigChange(name, value) for name, value in sorted(configs.items())]
        changes += [ConfigChange(name, None, AlterOp.DELETE) for name in temporary if name not in configs]
        if not changes:
            return
        resource = ConfigResource.topic(topic.name)
        error = (await self._admin.incremental_alter_configs({resource: changes}))[resource]
        if error is None:
            return
        for change in changes:  # the target may not know one of them
            error = (await self._admin.incremental_alter_configs({resource: [change]}))[resource]
            if error is not None:
                self._notes.append(f"Topic {topic.name}: {change.name}={change.value} was not set: {error}")

    # -- records -------------------------------------------------------------------------------------------------

    def _on_records(self, size: int) -> None:
        self._sent += size
        self._on_sent(self._sent)

    async def _by_link(self) -> None:
        admin, run = self._admin, self._run
        listen = self._options.listen or ServerAddress(await self._own_address(), 0)
        login = new_login()
        async with serving(run, self._store, listen, listen.host, login, self._on_records) as (server, address):
            await by_link.open_link(admin, run, address, login)
            await by_link.start_mirrors(admin, run)
            for topic in run.topics:
                await self._set_configs(topic)
            await by_link.Mirroring(admin, run, server, lambda: self._sent).wait()
        ends = {name: (partition.log_start, readable_end(partition)) for name, partition in run.partitions()}
        await self._commit({group.group_id: self._clamped(group, ends) for group in run.groups})
        await by_link.stop_mirrors(admin, run)
        await by_link.close_link(admin, run)
        await self._note_replication()

    async def _own_address(self) -> str:
        """The address of this machine on the way to the target."""
        host, port = self._admin.cluster.options.bootstrap_servers[0]

        def connect() -> str:
            with socket.create_connection((host, port), timeout=10) as reached:
                return str(reached.getsockname()[0])

        try:
            return await asyncio.to_thread(connect)
        except OSError as error:
            raise BackupError(
                f"{host}:{port} cannot be reached: {error}. Give the address for the brokers with --listen HOST:PORT."
            ) from error

    @staticmethod
    def _clamped(
        group: GroupBackup, ends: Mapping[TopicPartition, tuple[int, int]]
    ) -> list[tuple[BackedUpOffset, int]]:
        found = []
        for offset in group.offsets:
            bounds = ends.get(TopicPartition(offset.topic, offset.partition))
            if bounds is not None:
                found.append((offset, plan.within(offset, *bounds)))
        return found

    async def _by_produce(self, *, begun: bool) -> None:
        admin, run = self._admin, self._run
        marker = plan.link_name(run.id)
        if not begun:
            _raise_first(await admin.create_topics([NewTopic(marker, 1)]))
        present = {listing.name for listing in await admin.list_topics()}
        new = [
            NewTopic(topic.name, len(topic.partitions), configs=_WHILE_PRODUCING)
            for topic in run.topics
            if topic.name not in present
        ]
        _raise_first(await admin.create_topics(new) if new else {})
        committed: dict[TopicPartition, list[int]] = {}
        for group in run.groups:
            for offset in group.offsets:
                committed.setdefault(TopicPartition(offset.topic, offset.partition), []).append(offset.offset)
        translated = await ProduceRestore(admin, self._store, self._on_records).run(run, committed)
        for topic in run.topics:
            await self._set_configs(topic, list(_WHILE_PRODUCING))
        offsets = {group.group_id: plan.translated(group, translated) for group in run.groups}
        await self._commit(offsets)
        _raise_first(await admin.delete_topics([marker]))
        self._notes += plan.lost_by_produce(run)
        await self._note_replication()

    # -- groups --------------------------------------------------------------------------------------------------

    async def _commit(self, offsets: Mapping[str, Sequence[tuple[BackedUpOffset, int]]]) -> None:
        """Commit the offsets of all groups. A group keeps offsets that it has, and all of them if it has members."""
        for group in self._run.groups:
            new = {
                TopicPartition(offset.topic, offset.partition): (offset, position)
                for offset, position in offsets[group.group_id]
            }
            try:
                present = await self._present(group)
                new = {name: one for name, one in new.items() if name not in present}
                if plan.is_share(group):
                    positions = {name: position for name, (_, position) in new.items()}
                    deadline = self._admin.cluster.deadline()
                    _raise_first(
                        await alter_share_group_offsets(
                            self._admin.cluster, group.group_id, positions, deadline=deadline
                        )
                    )
                else:
                    _raise_first(
                        await self._admin.alter_group_offsets(
                            group.group_id,
                            {
                                name: OffsetAndMetadata(position, offset.metadata, _epoch(offset, position))
                                for name, (offset, position) in new.items()
                            },
                        )
                    )
            except KafkaError as error:
                self._notes.append(
                    f"The offsets of group {group.group_id} were not restored: {error} Stop its members, and set them "
                    "with `barnabas groups reset-offsets`."
                )

    async def _present(self, group: GroupBackup) -> Mapping[TopicPartition, int]:
        """The offsets that the target has of a group. Raises KafkaError."""
        try:
            if plan.is_share(group):
                deadline = self._admin.cluster.deadline()
                shares = await list_share_group_offsets(self._admin.cluster, group.group_id, deadline=deadline)
                return {
                    name: found.start_offset
                    for name, found in shares.items()
                    if not isinstance(found, KafkaError) and found.start_offset is not None
                }
            committed = await self._admin.list_group_offsets(group.group_id)
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return {}
            raise
        return {name: found.offset for name, found in committed.items() if not isinstance(found, KafkaError)}

    # -- notes ---------------------------------------------------------------------------------------------------

    async def _note_replication(self) -> None:
        described = await self._admin.describe_topics([topic.name for topic in self._run.topics])
        fewer = []
        for topic in self._run.topics:
            found = described[topic.name]
            if not isinstance(found, KafkaError):
                factor = max((len(partition.replicas) for partition in found.partitions), default=0)
                if factor != topic.replication_factor:
                    fewer.append(f"{topic.name} ({factor} instead of {topic.replication_factor})")
        if fewer:
            self._notes.append(f"The number of replicas is the target's default: {', '.join(fewer)}.")

    def _note_users(self) -> None:
        for user in self._run.users or ():
            mechanisms = ", ".join(sorted(user.mechanisms))
            self._notes.append(
                f"The password of user {user.name} ({mechanisms}) is not in the backup: set it with `barnabas users`."
            )


def _epoch(offset: BackedUpOffset, position: int) -> int:
    """The leader epoch of a committed offset holds only for the offset itself."""
    return offset.leader_epoch if position == offset.offset else -1


def _raise_first(results: Mapping[Any, object]) -> None:
    for result in results.values():
        if isinstance(result, KafkaError):
            raise result
