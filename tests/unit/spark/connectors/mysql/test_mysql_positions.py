"""GTID sets, GTID positions, places in files: parse, print, compare."""

from __future__ import annotations

import pytest

from barnabas.spark.connectors.mysql.errors import PositionError
from barnabas.spark.connectors.mysql.positions import BinlogPosition, FilePosition, GtidSet, MariadbGtidPosition

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "00000000-0000-0000-0000-000000000001"


def test_a_gtid_set_is_printed_in_its_normal_form() -> None:
    assert str(GtidSet.parse(f"{A.upper()}:7:1-5:4-6,\n{B}:1, {A}:9")) == f"{B}:1,{A}:1-7:9"
    assert str(GtidSet.parse("")) == ""


@pytest.mark.parametrize("text", ["x:1", A, f"{A}:0", f"{A}:5-1", f"{A}:a", f"{A}:1-", f"{A}:tag:1", f"{A}:{1 << 63}"])
def test_texts_that_are_no_gtid_sets_are_refused(text: str) -> None:
    with pytest.raises(PositionError):
        GtidSet.parse(text)


def test_gtids_are_added_one_by_one() -> None:
    gtids = GtidSet.parse(f"{A}:1-5")
    assert str(gtids.with_gtid(A, 6)) == f"{A}:1-6"
    assert str(gtids.with_gtid(A, 8).with_gtid(B, 1).with_gtid(A, 7)) == f"{B}:1,{A}:1-5:7-8"
    assert gtids.has(A.upper(), 5)
    assert not gtids.has(B, 5)


def test_a_mariadb_position_covers_all_sequences_up_to_its_own() -> None:
    position = MariadbGtidPosition.parse("7-3-12, 0-1-100")
    assert str(position) == "0-1-100,7-3-12"
    assert (position.has(0, 100), position.has(0, 101), position.has(9, 1)) == (True, False, False)
    other = MariadbGtidPosition.parse("0-2-101,1-1-1")
    assert str(position.union(other)) == "0-2-101,1-1-1,7-3-12"
    assert str(other.subtract(position)) == "0-2-101,1-1-1"
    assert position.contains(MariadbGtidPosition.parse("0-9-50"))
    assert str(position.with_gtid(0, 2, 3)) == "0-2-3,7-3-12"


@pytest.mark.parametrize("text", ["0-1", "0-1-x", "0-1-1,0-2-2", f"{1 << 32}-1-1", f"0-1-{1 << 64}"])
def test_texts_that_are_no_mariadb_positions_are_refused(text: str) -> None:
    with pytest.raises(PositionError):
        MariadbGtidPosition.parse(text)


def test_places_are_ordered_by_the_number_of_the_file() -> None:
    places = [FilePosition.parse(text) for text in ("bin.1000000:4", "bin.999999:5000", "bin.999999:400")]
    assert [str(place) for place in sorted(places)] == ["bin.999999:400", "bin.999999:5000", "bin.1000000:4"]
    for text in ("bin", "bin:4", "bin.000001:3", "bin.000001:x"):
        with pytest.raises(PositionError):
            FilePosition.parse(text)


def test_a_binlog_position_survives_json() -> None:
    position = BinlogPosition("bin.000001", 4, f"{A}:1-5", B)
    assert BinlogPosition.from_json(position.to_json()) == position
    with pytest.raises(PositionError):
        BinlogPosition.from_json('{"file": 1}')
