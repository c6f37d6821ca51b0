"""Checkpoint text, and the resolution of starting and ending positions."""

from __future__ import annotations

import json

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.spark.errors import OptionError
from barnabas.spark.source.positions import (
    EARLIEST,
    LATEST,
    AtEdge,
    AtOffsets,
    AtTimestamps,
    MissingTimestamp,
    Position,
    boundary_queries,
    resolve_boundary,
)

A0, A1, A10, B0 = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 10), TopicPartition("b", 0))


def test_checkpoint_text_has_sparks_form_and_is_sorted() -> None:
    position = Position({B0: 7, A10: 3, A1: 2, A0: 1})
    assert json.dumps(position.to_json()) == '{"a": {"0": 1, "1": 2, "10": 3}, "b": {"0": 7}}'
    assert Position.from_json(position.to_json()) == position


def test_position_json_contains_the_losses() -> None:
    position = Position({A0: 1}, {A0: 5, B0: 2})
    assert position.to_json() == {"$lost": {"a": {"0": 5}, "b": {"0": 2}}, "a": {"0": 1}}
    assert Position.from_json(position.to_json()) == position
    assert position.lost_records == 7


@pytest.mark.parametrize("document", [{"a": 1}, {"a": {"x": 1}}, {"a": {"0": "1"}}, {"a": {"-1": 1}}])
def test_foreign_checkpoint_text_is_rejected(document: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="the checkpoint's offset"):
        Position.from_json(document)


def test_only_unknown_offsets_are_queried() -> None:
    partitions = [A1, A0]
    assert boundary_queries(AtEdge(EARLIEST), partitions) == {A0: -2, A1: -2}
    assert boundary_queries(AtOffsets({A0: 17, A1: LATEST}), partitions) == {A1: -1}
    assert boundary_queries(AtTimestamps(everywhere=99), partitions) == {A0: 99, A1: 99}
    assert boundary_queries(AtTimestamps({A0: 5, A1: 6}), partitions) == {A0: 5, A1: 6}


@pytest.mark.parametrize("boundary", [AtOffsets({A0: 1}), AtOffsets({A0: 1, A1: 1, B0: 1}), AtTimestamps({A0: 1})])
def test_incomplete_starting_position_is_rejected(boundary: AtOffsets | AtTimestamps) -> None:
    with pytest.raises(OptionError, match="exactly the partitions"):
        boundary_queries(boundary, [A0, A1])


def test_resolve_combines_given_offsets_and_query_results() -> None:
    latest = {A0: 50, A1: 60}
    assert resolve_boundary(AtOffsets({A0: 17, A1: -1}), {A1: 60}, [A0, A1], latest, starting=True) == {A0: 17, A1: 60}
    assert resolve_boundary(AtEdge(EARLIEST), {A0: 3, A1: 4}, [A0, A1], latest, starting=True) == {A0: 3, A1: 4}


def test_timestamp_after_every_record_follows_the_strategy() -> None:
    answers, latest = {A0: 4, A1: -1}, {A0: 50, A1: 60}
    strict = AtTimestamps(everywhere=9)
    lenient = AtTimestamps(everywhere=9, missing=MissingTimestamp.LATEST)
    with pytest.raises(OptionError, match="no record of a-1"):
        resolve_boundary(strict, answers, [A0, A1], latest, starting=True)
    assert resolve_boundary(lenient, answers, [A0, A1], latest, starting=True) == {A0: 4, A1: 60}
    assert resolve_boundary(strict, answers, [A0, A1], latest, starting=False) == {A0: 4, A1: 60}
