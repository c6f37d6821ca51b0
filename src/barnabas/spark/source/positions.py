"""Value: positions of a query in the log, and the positions at which a query starts and ends.

In Spark's checkpoint, a stream's offset is the JSON text of a `Position`. The format is that of Spark's own Kafka
source, so that users can compare positions of the two and copy them, and has the ids of the topics besides, under a
name that no topic can have. By its id, a topic that was deleted and created again is known from the one that was read:

    {"$ids": {"orders": "sFq0nRZZQYWbJ1Y5nTrRhQ"}, "orders": {"0": 1200, "1": 1187}}

Brokers before Kafka 2.8 have no topic ids; then a topic that was created again is only noticed if it is shorter than
the position.

A position has the leader epochs at which it was planned (KIP-320). By these, a log is known that an unclean leader
election truncated before the position, and that has other records there now:

    {"$epochs": {"orders": {"0": 5, "1": 5}}, "$ids": {..}, "orders": {"0": 1200, "1": 1187}}

With `failOnDataLoss=report`, the counts of lost records are stored in the position, too. The counts survive restarts,
and every progress report of the query shows them:

    {"$lost": {"orders": {"0": 75}}, "orders": {"0": 1200, "1": 1187}}

A query that decodes records with a schema registry stores there by which schemas it did, each with its id and a digest
of its text, so that a registry is known whose ids began anew: an id in a record would then stand for another schema.

    {"$ids": {..}, "$schemas": {"value": "17:9f2c01ab34de"}, "orders": {"0": 1200, "1": 1187}}

Topics are sorted by name and partitions by number, because Spark compares offsets as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from barnabas.core.ids import TopicPartition
from barnabas.spark.errors import OptionError
from barnabas.spark.identities import Belonging, adopt, belonging

LATEST = -1
EARLIEST = -2
"""LATEST and EARLIEST are the special timestamps in ListOffsets requests. The JSON of `startingOffsets` uses the same
numbers as offsets.
"""

_LOST = "$lost"
_IDS = "$ids"
_SCHEMAS = "$schemas"
_EPOCHS = "$epochs"
_NOTES = (_LOST, _IDS, _SCHEMAS, _EPOCHS)

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read in each partition, the number of lost records of each partition, and the id of each
    topic, as text; a checkpoint of an earlier release has no ids."""

    offsets: Offsets
    lost: Offsets = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)
    """The schema of the `key` and of the `value`, if they are decoded with a registry, as `id:digest`."""
    epochs: Offsets = field(default_factory=dict)
    """The leader epoch of each partition when the position was planned. A checkpoint of an earlier release has none."""

    def to_json(self) -> dict[str, Any]:
        """The dict that Spark stores as the stream's offset."""
        document: dict[str, Any] = {_EPOCHS: nest(self.epochs)} if self.epochs else {}
        if self.ids:
            document[_IDS] = dict(sorted(self.ids.items()))
        if self.lost:
            document[_LOST] = nest(self.lost)
        if self.schemas:
            document[_SCHEMAS] = dict(sorted(self.schemas.items()))
        document.update(nest(self.offsets))
        return document

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Position:
        """The inverse of `to_json`. Raises OptionError if the document is not an offset of this source."""
        lost, ids, schemas = (document.get(name, {}) for name in (_LOST, _IDS, _SCHEMAS))
        for texts, what in ((ids, "topic ids"), (schemas, "schemas")):
            if not isinstance(texts, dict) or not all(isinstance(one, str) for one in texts.values()):
                raise OptionError(f"the checkpoint's {what} must be texts by name, got {_shown(texts)}")
        return Position(
            flatten(without_notes(document), "the checkpoint's offset"),
            flatten(lost, "the checkpoint's lost counts"),
            ids,
            schemas,
            flatten(document.get(_EPOCHS, {}), "the checkpoint's leader epochs"),
        )

    def adopting(self, ids: Mapping[str, str]) -> Position:
        """The position with the ids of its topics that it does not have yet."""
        topics = {tp.topic for tp in self.offsets}
        return replace(self, ids=adopt(self.ids, {name: one for name, one in ids.items() if name in topics}))

    def is_of(self, topic: str, ids: Mapping[str, str]) -> bool:
        """Whether the topic is the one that the position belongs to, as far as that is known."""
        stored = {"id": self.ids[topic]} if topic in self.ids else {}
        found = {"id": ids[topic]} if topic in ids else {}
        return belonging(stored, found) is not Belonging.REPLACED

    @property
    def lost_records(self) -> int:
        return sum(self.lost.values())


def without_notes(document: Mapping[str, Any]) -> dict[str, Any]:
    """The offsets in a position's JSON, without what it says besides them."""
    return {topic: partitions for topic, partitions in document.items() if topic not in _NOTES}


def nest(flat: Offsets) -> dict[str, dict[str, int]]:
    """Convert `{tp: n}` to `{"topic": {"partition": n}}`, sorted."""
    nested: dict[str, dict[str, int]] = {}
    for tp in sorted(flat):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = flat[tp]
    return nested


def flatten(nested: Any, what: str) -> dict[TopicPartition, int]:
    """Convert `{"topic": {"partition": n}}` to `{tp: n}`. Raises OptionError that names `what` if the document has
    another form.
    """
    try:
        flat = {
            TopicPartition(_text(topic), int(partition)): _whole(value)
            for topic, partitions in nested.items()
            for partition, value in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OptionError(
            f'{what} must look like {{"topicA": {{"0": 23, "1": -2}}, "topicB": {{"0": -1}}}}, got {_shown(nested)}'
        ) from None
    if any(tp.partition < 0 for tp in flat):
        raise OptionError(f"{what} names a negative partition: {_shown(nested)}")
    return flat


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Parse the option `assign`: `{"topicA": [0, 1], "topicB": [2]}`."""
    try:
        document = json.loads(text)
        pairs = {TopicPartition(_text(topic), _whole(p)) for topic, ps in document.items() for p in _list(ps)}
    except (AttributeError, TypeError, ValueError):
        raise OptionError(f'assign must be JSON such as {{"topicA": [0, 1], "topicB": [2]}}, got {text!r}') from None
    if not pairs or any(tp.partition < 0 for tp in pairs):
        raise OptionError(f"assign must name at least one partition, and none below 0, got {text!r}")
    return tuple(sorted(pairs))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 200 else text[:200] + "…"


@dataclass(frozen=True, slots=True)
class SourceSubscription:
    """The topics or partitions that a query reads. Exactly one of the three fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


class MissingTimestamp(Enum):
    """`startingOffsetsByTimestampStrategy`: what to do if all records of a partition are older than the timestamp."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtEdge:
    """Every partition at its earliest or at its latest offset."""

    offset: int  # EARLIEST or LATEST


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Each partition at its own offset; -1 is the latest offset, -2 the earliest."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """Each partition at its first record that is not older than a timestamp (ms). `everywhere` is one timestamp for all
    partitions.
    """

    timestamps: Offsets = field(default_factory=dict)
    everywhere: int | None = None
    missing: MissingTimestamp = MissingTimestamp.ERROR


Boundary = AtEdge | AtOffsets | AtTimestamps
"""The position at which a query starts or ends."""


def boundary_queries(boundary: Boundary, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The timestamp (or -1 or -2) to send in ListOffsets, for each partition whose offset is not given as a number.

    Raises OptionError if the option names other partitions than the subscription has. Such a mistake would otherwise
    show only as missing data.
    """
    wanted = sorted(partitions)
    match boundary:
        case AtEdge(edge):
            return dict.fromkeys(wanted, edge)
        case AtOffsets(offsets):
            _require_same(offsets, wanted, "offsets", "Use -2 for earliest and -1 for latest.")
            return {tp: offsets[tp] for tp in wanted if offsets[tp] < 0}
        case AtTimestamps(timestamps, everywhere):
            if everywhere is not None:
                return dict.fromkeys(wanted, everywhere)
            _require_same(timestamps, wanted, "timestamps", "")
            return {tp: timestamps[tp] for tp in wanted}


def resolve_boundary(
    boundary: Boundary, answers: Offsets, partitions: Iterable[TopicPartition], latest: Offsets, *, starting: bool
) -> dict[TopicPartition, int]:
    """The offset of each partition at `boundary`, from `answers`, the results of ListOffsets. An answer of -1 means
    that all records of the partition are older than the timestamp.

    For a starting position (`starting`), `startingOffsetsByTimestampStrategy` then decides: an OptionError, or the
    partition's latest offset. For an ending position, the latest offset is used.
    """
    resolved: dict[TopicPartition, int] = {}
    for tp in sorted(partitions):
        if isinstance(boundary, AtOffsets) and boundary.offsets[tp] >= 0:
            resolved[tp] = boundary.offsets[tp]
            continue
        offset = answers[tp]
        if offset < 0:
            if starting and isinstance(boundary, AtTimestamps) and boundary.missing is MissingTimestamp.ERROR:
                raise OptionError(
                    f"no record of {tp} has a timestamp at or after the starting timestamp; choose an earlier one, "
                    "or set startingOffsetsByTimestampStrategy=latest to start such partitions at their end"
                )
            offset = latest[tp]
        resolved[tp] = offset
    return resolved


def _require_same(given: Offsets, wanted: list[TopicPartition], what: str, hint: str) -> None:
    missing = [str(tp) for tp in wanted if tp not in given]
    unknown = [str(tp) for tp in sorted(given) if tp not in set(wanted)]
    if missing or unknown:
        raise OptionError(
            f"the {what} must name exactly the partitions that are read. "
            + (f"Not named: {', '.join(missing[:20])}. " if missing else "")
            + (f"Not part of the subscription: {', '.join(unknown[:20])}. " if unknown else "")
            + hint
        )
