"""Queries whose checkpoint and target are restored from backups at any time: no row is left out or doubled in silence.

The real history of a checkpoint runs against a target with a ledger, as a list of rows. Spark's part is a model: it
plans, dies before or after the commit, and repeats what it had planned. Planted bugs are caught.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas.spark.delivery import checkpoints, identity
from barnabas.spark.delivery.identity import LedgerEntry, Standing, standing_of
from barnabas.spark.errors import BatchConflictError
from tests.checkpoint_files import QUERY, QueryCheckpoint

STEPS = 30
SEEDS = 25


class World:
    """A topic that grows, a query, its checkpoint, a target, and backups of both."""

    def __init__(self, folder: Path, rng: Random) -> None:
        self.rng = rng
        self.folder = folder
        self.checkpoint = QueryCheckpoint(folder / "checkpoint")
        self.rows: list[int] = []
        self.entry: LedgerEntry | None = None
        self.end = 0
        self.runs = 0
        self.saved_checkpoint = False
        self.saved_target: tuple[list[int], LedgerEntry | None] | None = None
        self.conflicts = 0

    def planned(self) -> tuple[int, int, int] | None:
        """The micro-batch that is planned and not committed: its number, and its offsets."""
        offsets = self._numbers("offsets")
        if not offsets or offsets[-1] in self._numbers("commits"):
            return None
        return offsets[-1], self._end_of(offsets[-1] - 1), self._end_of(offsets[-1])

    def _numbers(self, kind: str) -> list[int]:
        return sorted(int(path.name) for path in (self.checkpoint.folder / kind).iterdir() if path.name.isdecimal())

    def _end_of(self, batch: int) -> int:
        path = self.checkpoint.folder / "offsets" / str(batch)
        if not path.exists():
            return 0
        found: int = json.loads(path.read_text().splitlines()[2])["orders"]["0"]
        return found

    def micro_batch(self) -> None:
        """Plan a micro-batch, or repeat the one that is planned; it may die at two places."""
        if self.planned() is None:
            self.runs += 1
            self.end += self.rng.randrange(1, 4)
            numbers = self._numbers("offsets")
            self.checkpoint.plan(numbers[-1] + 1 if numbers else 0, self.end, run=self.runs)
        planned = self.planned()
        assert planned is not None
        batch, start, end = planned
        if self.rng.random() < 0.2:
            return  # dies before the commit
        history = self.checkpoint.history()
        history.explain(lambda: self._publish(batch, range(start, end), history))
        if self.rng.random() < 0.2:
            return  # dies before Spark has logged the commit
        self.checkpoint.commit(batch)

    def _publish(self, batch: int, rows: range, history: Any) -> None:
        if not rows:
            return
        standing = standing_of(lambda query: self.entry if query == QUERY else None, QUERY, batch, history, "target")
        if standing is Standing.PUBLISH:
            self.rows += rows
            self.entry = identity.entry_of(batch, history)

    def back_up(self) -> None:
        if self.rng.random() < 0.5:
            shutil.rmtree(self.folder / "saved", ignore_errors=True)
            shutil.copytree(self.checkpoint.folder, self.folder / "saved")
            self.saved_checkpoint = True
        else:
            self.saved_target = (list(self.rows), self.entry)

    def restore(self) -> None:
        if self.rng.random() < 0.5 and self.saved_checkpoint:
            shutil.rmtree(self.checkpoint.folder)
            shutil.copytree(self.folder / "saved", self.checkpoint.folder)
        elif self.saved_target is not None:
            self.rows, self.entry = list(self.saved_target[0]), self.saved_target[1]

    def repair(self) -> None:
        history = self.checkpoint.history()
        (conflict,) = history.conflicts()
        if conflict.stored.offsets is None:  # the target has nothing of the query: everything is read again
            shutil.rmtree(self.checkpoint.folder)
            self.checkpoint = QueryCheckpoint(self.checkpoint.folder)
            return
        history.continue_from(conflict.stored.batch_id, conflict.stored.offsets)


def play(seed: int) -> World:
    """Random steps, then micro-batches until the query has read everything. Conflicts continue from the ledger."""
    rng = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), rng)
        for step in range(STEPS + 20):
            chosen = rng.random() if step < STEPS else 1.0
            if chosen < 0.15:
                world.back_up()
            elif chosen < 0.3:
                world.restore()
            else:
                try:
                    world.micro_batch()
                except BatchConflictError:
                    world.conflicts += 1
                    world.repair()
        while True:
            try:
                world.micro_batch()
                if world.planned() is None and world._end_of(world._numbers("offsets")[-1]) == world.end:
                    break
            except BatchConflictError:
                world.repair()
        assert sorted(world.rows) == list(range(world.end)), f"seed {seed}"
        return world


def test_no_row_is_lost_or_doubled_whatever_is_restored() -> None:
    assert sum(play(seed).conflicts for seed in range(SEEDS)) > SEEDS


def numbers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_is_same", lambda *_, **__: None)


def no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "is_behind", lambda *_: False)


def conflicts_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    original = identity.compare

    def compare(stored: LedgerEntry | None, batch_id: int, history: Any, target: str) -> Standing:
        standing = original(stored, batch_id, history, target)
        return Standing.PUBLISHED if standing is Standing.CONFLICT else standing

    monkeypatch.setattr(identity, "compare", compare)


def commits_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair leaves the later entries of the checkpoint where they are."""
    monkeypatch.setattr(checkpoints.CheckpointHistory, "_set_aside", lambda *_: None)


@pytest.mark.parametrize("plant", [numbers_only, no_notes, conflicts_are_skipped, commits_stay])
def test_planted_bugs_are_caught(monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        for seed in range(SEEDS):
            play(seed)
