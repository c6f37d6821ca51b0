"""Shell: lists the runs of a backup, and deletes those that are not kept any longer.

`prune` deletes manifests first, and then the objects that no remaining run needs; a prune that is interrupted leaves
objects that the next one deletes.
"""

from __future__ import annotations

from msgspec import Struct

from barnabas.backup.errors import BackupError
from barnabas.backup.keeping import LEFTOVERS_MS, Retention, objects_to_drop, runs_to_drop
from barnabas.backup.manifest import manifest_name, run_time_ms
from barnabas.backup.store import BackupStore
from barnabas.backup.values import RunManifest


class Pruned(Struct, frozen=True):
    """What a prune has deleted, or would delete."""

    runs: tuple[str, ...]
    kept: tuple[str, ...]
    objects: int
    size: int


async def list_runs(store: BackupStore) -> list[RunManifest | BackupError]:
    """All runs, the oldest first, also interrupted ones; for a damaged manifest the error."""
    names = await store.run_names()
    known = sorted([(run_id, True) for run_id in names.complete] + [(run_id, False) for run_id in names.partial])
    found: list[RunManifest | BackupError] = []
    for run_id, complete in known:
        try:
            found.append(await store.load(run_id, complete=complete))
        except BackupError as error:
            found.append(error)
    return found


async def prune(
    store: BackupStore, retention: Retention, now_ms: int, *, dry_run: bool = False, leftovers_ms: int = LEFTOVERS_MS
) -> Pruned:
    """Delete runs, and the objects that only they need. Raises BackupError if a kept run cannot be read: what it needs
    is not known then."""
    names = await store.run_names()
    dropped = runs_to_drop(names.complete, retention, now_ms)
    kept = [run_id for run_id in names.complete if run_id not in dropped]
    needed: set[str] = set()
    for run_id in kept:
        needed.update(stored.name for stored in (await store.load(run_id)).objects())
    newest = kept[-1] if kept else ""
    stale = []
    for run_id in names.partial:
        if run_id < newest and run_time_ms(run_id) < now_ms - leftovers_ms:
            stale.append(run_id)
        else:
            needed.update(stored.name for stored in (await store.load(run_id, complete=False)).objects())
    sizes = {found.name: found.size async for found in store.objects()}
    objects = objects_to_drop(sizes, needed, names.complete, now_ms, leftovers_ms)
    if not dry_run:
        for run_id in dropped:
            await store.delete(manifest_name(run_id))
        for run_id in stale:
            await store.delete(manifest_name(run_id, complete=False))
        for name in objects:
            await store.delete(name)
    return Pruned(tuple(dropped), tuple(kept), len(objects), sum(sizes[name] for name in objects))
