"""Shell: the objects of a backup: its manifests and its batches."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

from msgspec import Struct

from barnabas.backup.errors import DamagedBackupError, NoSuchRunError
from barnabas.backup.keeping import choose_run
from barnabas.backup.manifest import COMPLETE, DATA, RUNS, decode_run, encode_run, manifest_name, run_of_manifest
from barnabas.backup.values import RunManifest, StoredBatches
from barnabas.core.buffers import Buffer
from barnabas.core.objects.errors import ObjectMissingError
from barnabas.core.objects.ports import ListedObjectStore, StoredObject


class RunNames(Struct, frozen=True):
    """The ids of the runs that a backup has, sorted by time."""

    complete: tuple[str, ...]
    partial: tuple[str, ...]
    """Runs that were interrupted, or are under way."""


class BackupStore:
    """A backup in an object store, below `prefix`, which is empty or ends with `/`."""

    def __init__(self, store: ListedObjectStore, prefix: str = "", location: str = "") -> None:
        self._store = store
        self._prefix = prefix
        self.location = location
        """The location as the user gave it, for messages."""

    # -- manifests -----------------------------------------------------------------------------------------------

    async def run_names(self) -> RunNames:
        complete: list[str] = []
        partial: list[str] = []
        async for found in self.objects(RUNS):
            run_id = run_of_manifest(found.name)
            if run_id is not None:
                (complete if found.name.endswith(COMPLETE) else partial).append(run_id)
        return RunNames(tuple(sorted(complete)), tuple(sorted(partial)))

    async def load(self, run_id: str, *, complete: bool = True) -> RunManifest:
        """Raises NoSuchRunError, DamagedBackupError."""
        name = manifest_name(run_id, complete=complete)
        try:
            return decode_run(await self._store.read(self._prefix + name), name)
        except ObjectMissingError:
            raise NoSuchRunError(
                f"{self.location} has no run {run_id}. `barnabas backup list` shows the runs."
            ) from None

    async def choose(self, at: str | None) -> RunManifest:
        """The run that `at` names (`keeping.choose_run`). Raises NoSuchRunError, DamagedBackupError, ValueError."""
        complete = (await self.run_names()).complete
        if not complete:
            raise NoSuchRunError(f"{self.location} has no complete run. `barnabas backup run` makes one.")
        return await self.load(choose_run(complete, at))

    async def save(self, run: RunManifest) -> None:
        """Store the manifest of a run, at once as a whole."""
        await self._put(manifest_name(run.id, complete=run.complete), encode_run(run))

    async def _put(self, name: str, data: bytes) -> None:
        async def parts() -> AsyncIterator[Buffer]:
            yield data

        await self._store.put(self._prefix + name, parts())

    # -- objects -------------------------------------------------------------------------------------------------

    async def objects(self, prefix: str = DATA) -> AsyncIterator[StoredObject]:
        """The objects below `prefix`, with their names in the backup."""
        async for found in self._store.objects(self._prefix + prefix):
            yield StoredObject(found.name.removeprefix(self._prefix), found.size)

    async def put(self, name: str, parts: AsyncIterator[Buffer]) -> None:
        await self._store.put(self._prefix + name, parts)

    async def delete(self, name: str) -> None:
        await self._store.delete(self._prefix + name)

    async def size(self, name: str) -> int:
        """Raises ObjectMissingError."""
        return await self._store.size(self._prefix + name)

    async def read(self, stored: StoredBatches) -> bytes:
        """The bytes of an object. Raises DamagedBackupError if they are not those that were written."""
        try:
            data = await self._store.read(self._prefix + stored.name)
        except ObjectMissingError:
            raise DamagedBackupError(f"{stored.name} is missing in {self.location}.") from None
        if len(data) != stored.size:
            raise DamagedBackupError(f"{stored.name} has {len(data)} bytes instead of {stored.size}.")
        checksum = await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
        if checksum != stored.sha256:
            raise DamagedBackupError(f"{stored.name} is damaged: its checksum is wrong.")
        return data
