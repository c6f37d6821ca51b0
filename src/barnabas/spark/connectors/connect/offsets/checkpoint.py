"""Machine: the offset log of a Spark checkpoint <-> the offsets of Connect's API, and how an offset is changed.

A checkpoint has a file for each micro-batch in `offsets` (written before it) and in `commits` (written after it):

    v1
    {"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{...}}
    {"orders": {"0": 1200}}                    one line for each source: its offset after the micro-batch, "-" for none

An offset of topics is one of Connect's sink offsets for each partition. Any other offset is one source offset, whose
partition names the connector (`topic.prefix` of a Debezium connector is the name of its server).

A changed checkpoint is a new one that has the id of the query and goes on with its numbers: the ledgers of sinks know
both, and skip a micro-batch whose number they have. The new offsets therefore get the number after the last planned
micro-batch, whether that one was finished or not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.ids import TopicPartition
from barnabas.spark.connectors.connect.cluster.values import ConnectorConfig, ConnectRequestError
from barnabas.spark.errors import OptionError
from barnabas.spark.source.positions import Position

OffsetChange = tuple[Mapping[str, Any], Mapping[str, Any] | None]
"""A partition and its new offset; None lets the partition begin anew."""

COMMIT_TEXT: Final = 'v1\n{"nextBatchWatermarkMs":0}'
"""A file of `commits`, for a query without watermarks."""
_VERSION: Final = "v1"
_NONE: Final = "-"


class OffsetEntry(Struct, frozen=True):
    """One file of `offsets`: Spark's metadata, and the offset of each source."""

    batch_id: int
    metadata: str
    sources: tuple[str | None, ...]

    @staticmethod
    def parse(batch_id: int, text: str) -> OffsetEntry:
        """Raises ConnectRequestError for a format that this version does not know."""
        lines = text.splitlines()
        if len(lines) < 2 or lines[0] != _VERSION:
            raise ConnectRequestError(
                500,
                f"The checkpoint has an offset log of version {lines[0] if lines else ''!r}; this version of barnabas"
                f" reads {_VERSION}. Reset the offsets, or run the version of Spark that wrote the checkpoint.",
            )
        return OffsetEntry(batch_id, lines[1], tuple(None if line == _NONE else line for line in lines[2:]))

    def render(self) -> str:
        return "\n".join([_VERSION, self.metadata, *(_NONE if line is None else line for line in self.sources)])


class QueryOffsets(Struct, frozen=True):
    """The end of one query's offset log: the last committed micro-batch, and the last planned one."""

    query: str
    committed: OffsetEntry | None
    planned: OffsetEntry | None


def offsets_document(queries: Sequence[QueryOffsets], config: ConnectorConfig) -> list[dict[str, Any]]:
    """The committed offsets of all queries of a connector, as the API returns them."""
    found: list[dict[str, Any]] = []
    for offsets in queries:
        entry = offsets.committed
        for number, line in enumerate(() if entry is None else entry.sources):
            if line is None:
                continue
            position = _position(line)
            if position is None:
                partition = _source_partition(config, queries, offsets, number)
                found.append({"partition": partition, "offset": json.loads(line)})
                continue
            for tp in sorted(position.offsets):
                partition = {"kafka_topic": tp.topic, "kafka_partition": tp.partition}
                found.append({"partition": partition, "offset": {"kafka_offset": position.offsets[tp]}})
    return found


def altered(
    queries: Sequence[QueryOffsets], config: ConnectorConfig, changes: Sequence[OffsetChange]
) -> dict[str, OffsetEntry]:
    """The new last entries of the queries that change, by query. Raises ConnectRequestError (400) for a change that
    fits no query, and (409) if a partition that is not changed is in the middle of a micro-batch.
    """
    if not any(offsets.committed or offsets.planned for offsets in queries):
        raise ConnectRequestError(
            400, "The connector has no offsets yet. Start it once, stop it, and change its offsets then."
        )
    left = list(changes)
    result: dict[str, OffsetEntry] = {}
    for offsets in queries:
        base = offsets.committed or offsets.planned
        if base is None or offsets.planned is None:
            continue
        lines = list(base.sources)
        for number, line in enumerate(lines):
            partition = _source_partition(config, queries, offsets, number)
            planned_line = offsets.planned.sources[number]
            position = None if line is None else _position(line)
            if position is not None:
                lines[number], left = _altered_topics(position, planned_line, config, left)
            else:
                lines[number], left = _altered_source(line, planned_line, partition, left)
        if tuple(lines) != offsets.planned.sources or offsets.committed != offsets.planned:
            result[offsets.query] = replace(
                offsets.planned, batch_id=offsets.planned.batch_id + 1, sources=tuple(lines)
            )
    if left:
        known = [entry["partition"] for entry in offsets_document(queries, config)]
        raise ConnectRequestError(
            400,
            f"The connector has no partition {json.dumps(left[0][0])}. Its partitions are {json.dumps(known[:20])}.",
        )
    return result


def _altered_topics(
    position: Position, planned_line: str | None, config: ConnectorConfig, changes: list[OffsetChange]
) -> tuple[str, list[OffsetChange]]:
    """A line of topic offsets after the changes that concern it, and the other changes."""
    new, left, changed = dict(position.offsets), [], set()
    topics = {tp.topic for tp in new} | {part.strip() for part in config.get("topics", "").split(",")}
    for partition, offset in changes:
        tp = topic_partition(partition)
        if tp is None or tp.topic not in topics:
            left.append((partition, offset))
            continue
        changed.add(tp)
        if offset is None:
            new.pop(tp, None)  # a query reads a partition that it does not know from the beginning
        else:
            new[tp] = _kafka_offset(tp, offset)
    planned = _position(planned_line) if planned_line else None
    for tp, end in sorted({} if planned is None else planned.offsets.items()):
        if tp not in changed and position.offsets.get(tp) != end:
            raise _unfinished(f"{{kafka_topic: {tp.topic}, kafka_partition: {tp.partition}}}")
    # The offsets of a topic that are all given anew are those of the topic that there is now.
    kept = {tp.topic for tp in position.offsets if tp not in changed}
    ids = {topic: one for topic, one in position.ids.items() if topic in kept}
    return json.dumps(Position(new, position.lost, ids).to_json()), left


def _altered_source(
    line: str | None, planned_line: str | None, partition: Mapping[str, Any], changes: list[OffsetChange]
) -> tuple[str | None, list[OffsetChange]]:
    """A line that is one source offset after the change that concerns it, and the other changes."""
    left = [change for change in changes if dict(change[0]) != dict(partition)]
    mine = [offset for given, offset in changes if dict(given) == dict(partition)]
    if not mine:
        if line != planned_line:
            raise _unfinished(json.dumps(partition))
        return line, left
    offset = mine[-1]
    if offset is None:
        return None, left
    known = json.loads(line or planned_line or "{}")
    if known and sorted(known) != sorted(offset):
        raise ConnectRequestError(
            400, f"The offset of {json.dumps(partition)} must have the keys {', '.join(sorted(known))}."
        )
    return json.dumps(offset), left


def _unfinished(partition: str) -> ConnectRequestError:
    return ConnectRequestError(
        409,
        f"The connector was stopped in the middle of a micro-batch that has records of {partition}. It is not known"
        " whether they were delivered. Name the offset of this partition, too; or resume the connector, so that it"
        " finishes the micro-batch, and stop it again.",
    )


def _position(line: str) -> Position | None:
    """The offsets of topics in a line; None if the line is another kind of offset."""
    document = json.loads(line)
    try:
        return Position.from_json(document)
    except (OptionError, AttributeError):
        return None


def _source_partition(
    config: ConnectorConfig, queries: Sequence[QueryOffsets], offsets: QueryOffsets, number: int
) -> dict[str, Any]:
    prefix = config.get("topic.prefix")
    partition: dict[str, Any] = {"server": prefix} if prefix else {"connector": config.get("name", "")}
    if len(queries) > 1:
        partition["query"] = offsets.query
    entry = offsets.planned or offsets.committed
    if entry is not None and len(entry.sources) > 1:
        partition["source"] = number
    return partition


def topic_partition(partition: Mapping[str, Any]) -> TopicPartition | None:
    """The partition of a topic that a partition of Connect names; None if it names something else."""
    if set(partition) != {"kafka_topic", "kafka_partition"}:
        return None
    try:
        return TopicPartition(str(partition["kafka_topic"]), int(partition["kafka_partition"]))
    except (TypeError, ValueError):
        return None


def _kafka_offset(tp: TopicPartition, offset: Mapping[str, Any]) -> int:
    try:
        number = int(offset["kafka_offset"]) if set(offset) == {"kafka_offset"} else -1
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        message = f'The offset of {tp} must be {{"kafka_offset": 0}} or a larger number, got {json.dumps(offset)}.'
        raise ConnectRequestError(400, message)
    return number
