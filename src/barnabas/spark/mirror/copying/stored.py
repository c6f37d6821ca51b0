"""Codec: what a copier stores in the target cluster.

    mm2-offsets, MirrorMaker's own      ["MirrorSourceConnector", {"cluster", "partition", "topic"}]   {"offset": N}
    mm2-offsets, this package's         ["BarnabasMirror", {"cluster", "topic"}]                       {"topic_id": I}
    progress in a decision of the sink  {"orders": {"0": 1200, "1": 1187}}: the next upstream offsets

N is the last upstream offset that was passed, so MirrorMaker continues at N + 1. It may be that of a transaction
marker. The topic ids show that a topic was created anew while no copier was running; MirrorMaker ignores keys that are
not its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from barnabas.core.ids import TopicPartition
from barnabas.spark.delivery.ports import CompanionRecord
from barnabas.spark.mirror.errors import MirrorRecordError
from barnabas.spark.mirror.records import SourceOffset, encode_source_offset
from barnabas.spark.source.positions import flatten, nest

TOPIC_IDS: Final = "BarnabasMirror"
"""The name in the keys of records with topic ids, where MirrorMaker has the name of a connector."""

Record = tuple[bytes, bytes | None]


def encode_positions(source_alias: str, positions: Mapping[TopicPartition, int]) -> list[Record]:
    """The records of `mm2-offsets` for these next upstream offsets."""
    return [
        encode_source_offset(SourceOffset(source_alias, tp, offset - 1)) for tp, offset in sorted(positions.items())
    ]


def encode_progress(positions: Mapping[TopicPartition, int]) -> str:
    """The text of these next upstream offsets in a decision."""
    return json.dumps(nest(positions), separators=(",", ":"))


def companions(offsets_topic: str, source_alias: str, progress: Iterable[str]) -> list[CompanionRecord]:
    """The records of `mm2-offsets` for the progress of committed transactions; none without a topic."""
    positions: dict[TopicPartition, int] = {}
    for text in progress:
        positions |= flatten(json.loads(text), "the progress in the ledger")
    if not offsets_topic:
        return []
    return [CompanionRecord(offsets_topic, key, value) for key, value in encode_positions(source_alias, positions)]


def encode_topic_id(source_alias: str, topic: str, topic_id: UUID) -> Record:
    """The record that keeps the id of a source topic."""
    key = [TOPIC_IDS, {"cluster": source_alias, "topic": topic}]
    return _json(key), _json({"topic_id": str(topic_id)})


def decode_topic_id(key: bytes, value: bytes | None) -> tuple[str, str, UUID] | None:
    """The alias of the source cluster, the topic and its id; None for another record. Raises MirrorRecordError."""
    try:
        kind, where = json.loads(key)
        if kind != TOPIC_IDS or value is None:
            return None
        return str(where["cluster"]), str(where["topic"]), UUID(json.loads(value)["topic_id"])
    except (ValueError, TypeError, KeyError) as error:
        raise MirrorRecordError(f"a record of the offsets topic has the key {key!r}, which is not valid") from error


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
