"""What a copier stores in the target cluster can be read by MirrorMaker, and by a later copier."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.spark.delivery.ports import CompanionRecord
from barnabas.spark.mirror.copying.stored import Stored, companions, decode_topic_id, encode_progress, encode_stored
from barnabas.spark.mirror.errors import MirrorRecordError
from barnabas.spark.mirror.records import decode_source_offset

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = UUID(int=7)


def test_positions_are_those_of_mirror_maker_which_continues_at_the_next_offset() -> None:
    assert encode_stored("A", Stored({T1: 1, T0: 1200})) == [
        (b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t"}]', b'{"offset":1199}'),
        (b'["MirrorSourceConnector",{"cluster":"A","partition":1,"topic":"t"}]', b'{"offset":0}'),
    ]


def test_progress_is_stored_when_it_is_committed() -> None:
    texts = [encode_progress(Stored({T0: 5})), encode_progress(Stored({T1: 7}, {"t": ID}))]
    assert texts[0] == '{"offsets":{"t":{"0":5}}}'
    assert companions("mm2-offsets.A.internal", "A", texts) == [
        CompanionRecord("mm2-offsets.A.internal", key, value)
        for key, value in encode_stored("A", Stored({T0: 5, T1: 7}, {"t": ID}))
    ]
    assert companions("", "A", texts) == []


def test_a_position_has_its_leader_epoch_if_that_is_known() -> None:
    stored = Stored({T0: 5, T1: 7}, epochs={T0: 3})
    records = encode_stored("A", stored)
    assert records[0][1] == b'{"offset":4,"leader_epoch":3}'
    found = [decode_source_offset(*record) for record in records]
    assert [one and one.leader_epoch for one in found] == [3, None]
    (first, second) = companions("o", "A", [encode_progress(stored)])
    assert [(first.key, first.value), (second.key, second.value)] == records


def test_topic_ids_are_records_that_mirror_maker_passes_over() -> None:
    ((key, value),) = encode_stored("A", Stored(topic_ids={"t": ID}))
    assert decode_topic_id(key, value) == ("A", "t", ID)
    assert decode_source_offset(key, value) is None
    (position,) = encode_stored("A", Stored({T0: 1}))
    assert decode_topic_id(*position) is None
    with pytest.raises(MirrorRecordError, match="is not valid"):
        decode_topic_id(b'["BarnabasMirror",3]', b"{}")
