"""What a copier stores in the target cluster can be read by MirrorMaker, and by a later copier."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.spark.delivery.ports import CompanionRecord
from barnabas.spark.mirror.copying.stored import (
    companions,
    decode_topic_id,
    encode_positions,
    encode_progress,
    encode_topic_id,
)
from barnabas.spark.mirror.errors import MirrorRecordError
from barnabas.spark.mirror.records import decode_source_offset

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_positions_are_those_of_mirror_maker_which_continues_at_the_next_offset() -> None:
    assert encode_positions("A", {T1: 1, T0: 1200}) == [
        (b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t"}]', b'{"offset":1199}'),
        (b'["MirrorSourceConnector",{"cluster":"A","partition":1,"topic":"t"}]', b'{"offset":0}'),
    ]


def test_progress_becomes_positions_when_it_is_committed() -> None:
    texts = [encode_progress({T0: 5}), encode_progress({T1: 7})]
    assert texts[0] == '{"t":{"0":5}}'
    records = companions("mm2-offsets.A.internal", "A", texts)
    assert records == [
        CompanionRecord("mm2-offsets.A.internal", key, value) for key, value in encode_positions("A", {T0: 5, T1: 7})
    ]
    assert companions("", "A", texts) == []


def test_topic_ids_are_records_that_mirror_maker_passes_over() -> None:
    key, value = encode_topic_id("A", "t", UUID(int=7))
    assert decode_topic_id(key, value) == ("A", "t", UUID(int=7))
    assert decode_source_offset(key, value) is None
    position = encode_positions("A", {T0: 1})[0]
    assert decode_topic_id(*position) is None
    with pytest.raises(MirrorRecordError, match="is not valid"):
        decode_topic_id(b'["BarnabasMirror",3]', b"{}")
