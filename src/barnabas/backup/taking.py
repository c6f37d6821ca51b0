"""Shell: one run of a backup.

    base ─► topics, groups, ACLs, users, quotas ─► bounds of all logs ─► copy partitions ─► manifest
                                                                          └─ every `checkpoint_s`: a partial manifest

Groups are read before the bounds, so every committed offset lies within the records of the run. A run that is killed
leaves objects that no manifest names, and perhaps a partial manifest, which the next run continues.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.backup import cluster_state
from barnabas.backup.cluster_state import BackupTopics, TopicNow
from barnabas.backup.copying import PartitionCopy
from barnabas.backup.errors import BackupError, DamagedBackupError, NoSuchRunError
from barnabas.backup.manifest import manifest_name, new_run_id
from barnabas.backup.planning import backed_up, choose_base, is_same_topic, plan_partition
from barnabas.backup.store import BackupStore, RunNames
from barnabas.backup.values import PartitionBackup, RunManifest, TopicBackup
from barnabas.client.admin import AsyncAdmin
from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.objects.errors import ObjectMissingError
from barnabas.core.rng import Rng

OBJECT_BYTES: Final = 32 * 1024 * 1024
PARALLEL: Final = 4


class BackupOptions(Struct, frozen=True):
    """What a run backs up, and how."""

    selection: BackupTopics = BackupTopics()
    full: bool = False
    """Read all records again, instead of those that are new since the last run."""
    object_bytes: int = OBJECT_BYTES
    parallel: int = PARALLEL
    """The number of partitions that are copied at the same time."""
    checkpoint_s: float = 30.0


class BackupProgress(Struct):
    """How far a run is."""

    offsets: int = 0
    """The number of offsets to read."""
    offsets_done: int = 0
    bytes_done: int = 0
    partitions: int = 0
    partitions_done: int = 0


class BackupRun:
    """One run of a backup. `on_progress` is called after each piece of records."""

    def __init__(
        self,
        admin: AsyncAdmin,
        store: BackupStore,
        options: BackupOptions,
        clock: Clock,
        rng: Rng,
        on_progress: Callable[[BackupProgress], None] = lambda progress: None,
    ) -> None:
        self._admin = admin
        self._store = store
        self._options = options
        self._clock = clock
        self._on_progress = on_progress
        self._progress = BackupProgress()
        self._notes: list[str] = []
        self._topics: Sequence[TopicNow] = ()
        self._copies: dict[TopicPartition, PartitionCopy] = {}
        self._begun: set[TopicPartition] = set()
        self._base: RunManifest | None = None
        self._known: dict[TopicPartition, PartitionBackup] = {}
        started_ms = clock.now_ms()
        self._run = RunManifest(
            id=new_run_id(started_ms, int(rng.random() * 0x10000)),
            cluster_id="",
            started_ms=started_ms,
            finished_ms=0,
            complete=False,
            base=None,
            added_bytes=0,
            topics=(),
        )

    async def run(self) -> RunManifest:
        """Back up the cluster, and return the run. Raises BackupError, KafkaError."""
        names = await self._store.run_names()
        cluster_id = (await self._admin.describe_cluster()).cluster_id or ""
        self._base = None if self._options.full else await self._load_base(names)
        if self._base is not None and self._base.cluster_id != cluster_id:
            raise BackupError(
                f"{self._store.location} is a backup of cluster {self._base.cluster_id}, and this is cluster "
                f"{cluster_id}. Use another directory or prefix for this cluster."
            )
        base_id = None if self._base is None else self._base.id
        self._run = replace(self._run, cluster_id=cluster_id, base=base_id)
        await self._read_state()
        await self._plan()
        try:
            await self._copy_all()
        except BaseException:
            with contextlib.suppress(KafkaError):
                await self._save_partial()
            raise
        await self._check_base()
        run = self._result(complete=True)
        await self._store.save(run)
        await self._store.delete(manifest_name(run.id, complete=False))
        if self._base is not None and not self._base.complete:
            await self._store.delete(manifest_name(self._base.id, complete=False))
        return run

    async def _load_base(self, names: RunNames) -> RunManifest | None:
        complete, partial = set(names.complete), set(names.partial)
        while (chosen := choose_base(complete, partial)) is not None:
            run_id, is_complete = chosen
            try:
                return await self._store.load(run_id, complete=is_complete)
            except (DamagedBackupError, NoSuchRunError) as error:
                self._notes.append(f"The run could not continue run {run_id}: {error}")
                (complete if is_complete else partial).discard(run_id)
        return None

    async def _check_base(self) -> None:
        """The objects of the base may have been deleted together with it."""
        if self._base is None or not self._base.complete:
            return
        try:
            await self._store.size(manifest_name(self._base.id))
        except ObjectMissingError:
            raise BackupError(
                f"Run {self._base.id}, which this run has continued, was deleted meanwhile. Run the backup again, and "
                "do not prune while a backup runs."
            ) from None

    # -- planning ------------------------------------------------------------------------------------------------

    async def _read_state(self) -> None:
        admin, notes = self._admin, self._notes
        self._topics = await cluster_state.read_topics(admin, self._options.selection)
        groups = await cluster_state.read_groups(admin, [topic.name for topic in self._topics], notes)
        self._run = replace(
            self._run,
            groups=groups,
            acls=await cluster_state.read_acls(admin, notes),
            users=await cluster_state.read_users(admin, notes),
            quotas=await cluster_state.read_quotas(admin, notes),
        )

    async def _plan(self) -> None:
        before = backed_up(self._base)
        for topic in self._topics:
            known = before.get(topic.name)
            if known is None:
                continue
            if is_same_topic(known, topic.topic_id):
                for partition in known.partitions:
                    self._known[TopicPartition(topic.name, partition.partition)] = partition
            else:
                self._notes.append(f"Topic {topic.name} was deleted and created again since run {self._run.base}.")
        logs = await cluster_state.read_logs(self._admin, self._topics, self._known)
        ids = {topic.name: topic.topic_id for topic in self._topics}
        for name, log in logs.items():
            plan = plan_partition(name, self._known.get(name), log)
            copy = self._copies[name] = PartitionCopy(name, ids[name.topic], plan, log.log_start, self._run.id)
            self._progress.offsets += copy.offsets_left
        self._progress.partitions = len(self._copies)

    # -- copying -------------------------------------------------------------------------------------------------

    async def _copy_all(self) -> None:
        waiting = sorted(self._copies.values(), key=lambda copy: -copy.offsets_left)
        queue = iter(waiting)
        try:
            async with asyncio.TaskGroup() as tasks:
                checkpoints = tasks.create_task(self._checkpoint())
                workers = [tasks.create_task(self._work(queue)) for _ in range(self._options.parallel)]
                await asyncio.gather(*workers)
                checkpoints.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _work(self, queue: Iterator[PartitionCopy]) -> None:
        for copy in queue:
            self._begun.add(copy.name)
            await copy.run(self._admin, self._store, self._options.object_bytes, self._on_read)
            self._progress.partitions_done += 1

    def _on_read(self, offsets: int, size: int) -> None:
        self._progress.offsets_done += offsets
        self._progress.bytes_done += size
        self._on_progress(self._progress)

    async def _checkpoint(self) -> None:
        while True:
            await asyncio.sleep(self._options.checkpoint_s)
            await self._save_partial()

    async def _save_partial(self) -> None:
        if any(copy.added_bytes for copy in self._copies.values()):
            await self._store.save(self._result(complete=False))

    # -- result --------------------------------------------------------------------------------------------------

    def _result(self, *, complete: bool) -> RunManifest:
        """The run as it is now. In a partial one, a partition that was not begun is as in the base."""
        copies = self._copies.values()
        return replace(
            self._run,
            finished_ms=self._clock.now_ms(),
            complete=complete,
            added_bytes=sum(copy.added_bytes for copy in copies),
            topics=tuple(self._topic(topic, complete=complete) for topic in self._topics),
            notes=(*self._notes, *(note for copy in copies for note in copy.notes)),
        )

    def _topic(self, topic: TopicNow, *, complete: bool) -> TopicBackup:
        partitions = []
        for index in range(topic.partitions):
            name = TopicPartition(topic.name, index)
            if complete or name in self._begun:
                partitions.append(self._copies[name].result())
            elif name in self._known:
                partitions.append(self._known[name])
        return TopicBackup(topic.name, topic.topic_id, topic.replication_factor, topic.configs, tuple(partitions))
