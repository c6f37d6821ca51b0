"""Codec: what a copier stores in the target cluster.

    mm2-offsets, MirrorMaker's own      ["MirrorSourceConnector", {"cluster", "partition", "topic"}]
                                            {"offset": N, "leader_epoch": E}
    mm2-offsets, this package's         ["BarnabasMirror", {"cluster", "topic"}]                       {"topic_id": I}
                                        ["BarnabasMirrorTarget", {"cluster", "topic"}]                 {"topic_id": I}
    progress in a decision of the sink  {"offsets": {"orders": {"0": 1200, "1": 1187}}, "topic_ids": {"orders": I},
                                        "target_ids": {"a.orders": I}, "epochs": {"orders": {"0": E, "1": E}}}: the next
                                        upstream offsets

N is the last upstream offset that was passed, so MirrorMaker continues at N + 1. It may be that of a transaction
marker. The topic ids show that a topic was created anew while no copier was running: one of the source cluster, whose
records are others, or one of the target cluster, which lacks what was copied. The leader epoch of a position shows that
an unclean election has replaced records before it. MirrorMaker ignores keys that are not its own, and the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from barnabas.core.ids import TopicPartition
from barnabas.spark.delivery.ports import CompanionRecord
from barnabas.spark.mirror.errors import MirrorRecordError
from barnabas.spark.mirror.records import SourceOffset, encode_source_offset
from barnabas.spark.source.positions import flatten, nest

TOPIC_IDS: Final = "BarnabasMirror"
TARGET_IDS: Final = "BarnabasMirrorTarget"
"""The names in the keys of records with topic ids, where MirrorMaker has the name of a connector."""

Record = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Stored:
    """What the target cluster stores of a source cluster: next upstream offsets, and the ids of the topics of both."""

    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    target_ids: Mapping[str, UUID] = field(default_factory=dict)
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The leader epochs of the positions, where they are known."""

    def __bool__(self) -> bool:
        return bool(self.positions or self.topic_ids or self.target_ids)


def encode_stored(source_alias: str, stored: Stored) -> list[Record]:
    """The records of the offsets topic."""
    positions = [
        SourceOffset(source_alias, tp, offset - 1, stored.epochs.get(tp))
        for tp, offset in sorted(stored.positions.items())
    ]
    ids = [
        _encode_topic_id(kind, source_alias, name, topic_id)
        for kind, found in ((TOPIC_IDS, stored.topic_ids), (TARGET_IDS, stored.target_ids))
        for name, topic_id in sorted(found.items())
    ]
    return [encode_source_offset(position) for position in positions] + ids


def encode_progress(stored: Stored) -> str:
    """The text in a decision."""
    document: dict[str, object] = {"offsets": nest(stored.positions)}
    for field_name, found in (("topic_ids", stored.topic_ids), ("target_ids", stored.target_ids)):
        if found:
            document[field_name] = {name: str(topic_id) for name, topic_id in sorted(found.items())}
    if stored.epochs:
        document["epochs"] = nest(stored.epochs)
    return json.dumps(document, separators=(",", ":"))


def companions(offsets_topic: str, source_alias: str, progress: Iterable[str]) -> list[CompanionRecord]:
    """The records of the offsets topic for the progress of committed transactions; none without a topic."""
    positions: dict[TopicPartition, int] = {}
    topic_ids: dict[str, UUID] = {}
    target_ids: dict[str, UUID] = {}
    epochs: dict[TopicPartition, int] = {}
    for text in progress:
        document = json.loads(text)
        positions |= flatten(document["offsets"], "the progress in the ledger")
        topic_ids |= {str(name): UUID(topic_id) for name, topic_id in document.get("topic_ids", {}).items()}
        target_ids |= {str(name): UUID(topic_id) for name, topic_id in document.get("target_ids", {}).items()}
        epochs |= flatten(document.get("epochs", {}), "the progress in the ledger")
    if not offsets_topic:
        return []
    records = encode_stored(source_alias, Stored(positions, topic_ids, target_ids, epochs))
    return [CompanionRecord(offsets_topic, key, value) for key, value in records]


def _encode_topic_id(kind: str, source_alias: str, topic: str, topic_id: UUID) -> Record:
    """The record that keeps the id of a topic of the source (TOPIC_IDS), or of the target (TARGET_IDS)."""
    key = [kind, {"cluster": source_alias, "topic": topic}]
    return _json(key), _json({"topic_id": str(topic_id)})


def decode_topic_id(key: bytes, value: bytes | None, kind: str = TOPIC_IDS) -> tuple[str, str, UUID] | None:
    """The alias of the source cluster, the topic and its id; None for a record of another kind. Raises
    MirrorRecordError."""
    try:
        found, where = json.loads(key)
        if found != kind or value is None:
            return None
        return str(where["cluster"]), str(where["topic"]), UUID(json.loads(value)["topic_id"])
    except (ValueError, TypeError, KeyError) as error:
        raise MirrorRecordError(f"a record of the offsets topic has the key {key!r}, which is not valid") from error


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
