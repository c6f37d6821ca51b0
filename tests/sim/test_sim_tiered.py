"""Simulated clusters with topics in tiered storage, an object store with faults, and planted bugs that they find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.server.storage import retention
from barnabas.server.storage.log import Log
from barnabas.server.tiering.copier import SegmentCopier
from barnabas.testing.sim import CorrectnessError, CrashError, LivenessError
from barnabas.testing.sim.cluster.storm import storm

ONCE_FAILED = (3, 16, 17)
"""The failures of these seeds were: a read of the object store outside of a task; producers that a recovery from the
start of the local log had lost; producers of a rebuilt replica that were not on its disk."""


def _play(seed: int) -> None:
    assert storm(seed, tiered=True).acknowledged > 0, f"seed {seed}: no record was acknowledged"


@pytest.mark.system
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[] if seed == 3 else pytest.mark.slow) for seed in ONCE_FAILED]
)
def test_a_tiered_seed_that_once_failed_is_clean(seed: int) -> None:
    _play(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 300, 20))
def test_many_tiered_clusters_are_clean(first: int) -> None:
    for seed in range(first, first + 20):
        _play(seed)


def _deleted_without_a_copy(patch: pytest.MonkeyPatch) -> None:
    """Local retention deletes segments that have no copy."""
    patch.setattr(retention, "_is_copied", lambda state: lambda segment, end: True)


def _sizes_not_asked(patch: pytest.MonkeyPatch) -> None:
    """A copy is finished without asking the store whether it has the objects."""
    real = SegmentCopier._upload

    async def upload(self: SegmentCopier, *arguments: Any) -> None:
        store = self._store

        class Trusted:
            def __getattr__(self, name: str) -> Any:
                return getattr(store, name)

            async def size(self, name: str) -> int:
                return sizes[name]

        sizes: dict[str, int] = {}

        async def put(name: str, parts: Any) -> None:
            data = b"".join([bytes(part) async for part in parts])
            sizes[name] = len(data)

            async def again() -> Any:
                yield data

            await store.put(name, again())

        trusted: Any = Trusted()
        trusted.put = put
        self._store = trusted
        try:
            await real(self, *arguments)
        finally:
            self._store = store

    patch.setattr(SegmentCopier, "_upload", upload)


def _producers_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A replica that continues above the copies does not take over the producers."""
    real = Log.continue_above_copies

    def continue_above_copies(
        self: Log, offset: int, log_start_offset: int, epochs: Any, producers: Any, *, now_ms: int
    ) -> None:
        real(self, offset, log_start_offset, epochs, (), now_ms=now_ms)

    patch.setattr(Log, "continue_above_copies", continue_above_copies)


@pytest.mark.system
@pytest.mark.parametrize(
    "plant",
    [
        _deleted_without_a_copy,
        *(pytest.param(bug, marks=pytest.mark.slow) for bug in (_sizes_not_asked, _producers_forgotten)),
    ],
)
def test_a_planted_bug_of_tiered_storage_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(12):
        try:
            storm(seed, tiered=True)
        except (CorrectnessError, LivenessError, CrashError):
            return
    pytest.fail("12 seeds did not find the bug")
