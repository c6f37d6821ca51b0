"""What the source of MySQL makes of binlogs that are not what they were, on binlogs in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs
from tests.logs import messages

from barnabas.spark.connectors.capture.options import parse_capture_options
from barnabas.spark.connectors.mysql import source as source_module
from barnabas.spark.connectors.mysql.binlog.events import Gtid
from barnabas.spark.connectors.mysql.errors import HistoryLostError
from barnabas.spark.connectors.mysql.options import MYSQL_OPTIONS, MYSQL_REFUSED
from barnabas.spark.connectors.mysql.positions import BinlogPosition, FilePosition
from barnabas.spark.connectors.mysql.server import ServerPlan
from barnabas.spark.connectors.mysql.source import MysqlSource

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
PLAN = ServerPlan(False, (8, 0, 0), UUID, True, True, ("a setting may change",))
BEGIN = BinlogPosition("bin.000001", 100, f"{UUID}:1-9", UUID)
END = structs.replace(BEGIN, position=300, gtids=f"{UUID}:1-10")


class Binlogs:
    """The binlogs of a server, whose only event begins a transaction, and ends at the end of the micro-batch."""

    def __init__(self, *_: Any) -> None:
        pass

    def check_available(self, position: BinlogPosition) -> None:
        pass

    check_begun = check_history = check_available

    def events(self, start: BinlogPosition, end: FilePosition) -> Iterator[tuple[bytes, Any, bool]]:
        yield b"", Gtid(timestamp=0, server_id=1, end=300, uuid=UUID, number=10, commit_us=0, transaction_bytes=0), True


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MysqlSource:
    monkeypatch.setattr(source_module, "ServerBinlogs", Binlogs)
    monkeypatch.setattr(source_module, "read_plan", lambda *_: PLAN)
    monkeypatch.setattr(source_module, "read_tables", lambda *_: ["shop.t"])
    monkeypatch.setattr(source_module, "read_cascade_warnings", lambda *_: [])
    monkeypatch.setattr(MysqlSource, "_session", lambda _: None)
    texts = {"database.hostname": "h", "database.user": "u", "topic.prefix": "p", "stagingLocation": str(tmp_path)}
    return MysqlSource(parse_capture_options(texts, MYSQL_OPTIONS, MYSQL_REFUSED, connector="mysql", version="1"))


def test_an_end_inside_a_transaction_is_one_of_another_history(source: MysqlSource) -> None:
    with pytest.raises(HistoryLostError, match=r"bin\.000001:300.*is inside of one now.*failOnDataLoss=false"):
        list(source.read(msgspec.to_builtins(BEGIN), msgspec.to_builtins(END)))


def test_a_start_that_checks_two_positions_warns_once(source: MysqlSource, caplog: pytest.LogCaptureFixture) -> None:
    for position in (BEGIN, END):
        source.check(msgspec.to_builtins(position), begun=False)
    assert messages(caplog, "barnabas.spark") == ["a setting may change"]
