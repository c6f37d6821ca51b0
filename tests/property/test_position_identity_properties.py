"""A query of Spark on a topic that is deleted and created again at any time: no record is passed over in silence.

The real planner decides, and positions go through the JSON of a checkpoint. Spark's part is a model: it plans, dies
before or after it has read, and repeats what it had planned. Planted bugs are caught.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.spark.errors import DataLossError
from barnabas.spark.options import OnDataLoss
from barnabas.spark.source.options import Limits
from barnabas.spark.source.planner import LogOffsets, StreamPlanner, plan_replay
from barnabas.spark.source.positions import Position

TP = TopicPartition("orders", 0)
SEEDS, STEPS = 60, 25
Record = tuple[int, int]
"""The number of the topic of the name `orders`, and the offset in it."""


class World:
    def __init__(self, rng: Random, on_data_loss: OnDataLoss) -> None:
        self.rng = rng
        self.on_data_loss = on_data_loss
        self.topic, self.end = 0, 0
        self.read: list[Record] = []
        self.checkpoint = [self._text(Position({TP: 0}, ids={"orders": "id-0"}))]
        """The offsets of the micro-batches; the last one may be planned and not read yet."""
        self.committed = 1
        self.restart()

    def _text(self, position: Position) -> str:
        return json.dumps(position.to_json())

    def _position(self, at: int) -> Position:
        return Position.from_json(json.loads(self.checkpoint[at]))

    def log(self) -> LogOffsets:
        return LogOffsets({TP: 0}, {TP: self.end}, {"orders": f"id-{self.topic}"})

    def restart(self) -> None:
        self.planner = StreamPlanner(Limits(max_offsets=self.rng.choice((None, 5))), self.on_data_loss)

    def produce(self) -> None:
        self.end += self.rng.randrange(1, 9)

    def recreate(self) -> None:
        """Fewer records than the position, or more, follow."""
        self.topic, self.end = self.topic + 1, self.rng.choice((0, 2, 40))

    def micro_batch(self) -> None:
        if self.committed == len(self.checkpoint):
            end = self.planner.plan(self._position(-1), self.log(), now_ms=0).end
            if end == self._position(-1):
                return None
            self.checkpoint.append(self._text(end))
            if self.rng.random() < 0.3:
                return self.restart()  # it dies before it has read; the topic may be another one when it comes back
        log = self.log()
        ranges, losses = plan_replay(self._position(-2), self._position(-1), log.earliest, log.ids)
        if losses and self.on_data_loss is OnDataLoss.FAIL:
            raise DataLossError("a replay")
        self.read += [(self.topic, offset) for part in ranges for offset in range(part.start, part.end)]
        self.committed += 1
        return None


def play(seed: int, on_data_loss: OnDataLoss) -> World:
    rng = Random(seed)
    world = World(rng, on_data_loss)
    for _ in range(STEPS):
        step = rng.random()
        try:
            if step < 0.1:
                world.recreate()
            elif step < 0.4:
                world.produce()
            else:
                world.micro_batch()
        except DataLossError:
            return world
    for _ in range(100):
        try:
            world.micro_batch()
        except DataLossError:
            return world
    assert sorted(set(world.read)) == sorted(world.read), f"seed {seed}: records are doubled"
    missing = {(world.topic, offset) for offset in range(world.end)} - set(world.read)
    assert not missing, f"seed {seed}: records of the topic are missing"
    if on_data_loss is OnDataLoss.FAIL:
        assert world.topic == 0, f"seed {seed}: another topic of the name was read on, without an error"
    return world


@pytest.mark.parametrize("on_data_loss", [OnDataLoss.FAIL, OnDataLoss.SKIP])
def test_no_record_is_passed_over_in_silence(on_data_loss: OnDataLoss) -> None:
    worlds = [play(seed, on_data_loss) for seed in range(SEEDS)]
    assert sum(world.topic > 0 for world in worlds) > SEEDS // 2


def without_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """A position is a number alone."""
    monkeypatch.setattr(Position, "is_of", lambda self, topic, ids: True)


def not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids are not in the checkpoint."""
    real = Position.to_json

    def to_json(self: Position) -> dict[str, Any]:
        return real(Position(self.offsets, self.lost))

    monkeypatch.setattr(Position, "to_json", to_json)


@pytest.mark.parametrize("on_data_loss", [OnDataLoss.FAIL, OnDataLoss.SKIP])
@pytest.mark.parametrize("plant", [without_ids, not_stored])
def test_planted_bugs_are_caught(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], on_data_loss: OnDataLoss
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        for seed in range(SEEDS):
            play(seed, on_data_loss)
