"""A node that reads a metadata.version above the levels that it knows stops, and says why."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.server.metadata.errors import MetadataError, MetadataRecordError
from barnabas.server.metadata.ports import LoadedSnapshot
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.codec import LATEST_METADATA_VERSION, decode_record
from barnabas.server.metadata.records.other import FeatureLevelRecord
from barnabas.server.quorum.handover import Handover
from barnabas.server.raft.machine.values import OffsetAndEpoch


def load(records: Sequence[MetadataRecord]) -> Handover:
    snapshot = LoadedSnapshot(10, 1, 0, tuple(records))
    snapshots = SimpleNamespace(load=lambda _: snapshot, forget=lambda: None)
    handover = Handover(1, cast("Any", None), cast("Any", snapshots))
    handover.on_snapshot(OffsetAndEpoch(10, 1))
    return handover


def test_a_newer_metadata_version_stops_the_node() -> None:
    newest = FeatureLevelRecord(name="metadata.version", feature_level=LATEST_METADATA_VERSION)
    assert load([newest]).metadata_version == LATEST_METADATA_VERSION
    newer = FeatureLevelRecord(name="metadata.version", feature_level=LATEST_METADATA_VERSION + 1)
    with pytest.raises(MetadataError, match=r"metadata.version 31, and .* knows levels up to 30 \(4.3-IV0\)"):
        load([newer])


@pytest.mark.parametrize(("value", "what"), [(b"\1\x1d\0", "type 29 version 0"), (b"\1\0\5", "type 0 version 5")])
def test_a_record_of_a_newer_program_is_refused(value: bytes, what: str) -> None:
    with pytest.raises(MetadataRecordError, match=f"{what} is unknown: .* a version of Barnabas that knows"):
        decode_record(value)
