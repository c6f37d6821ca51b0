"""Positions of an earlier leader, of a query and of a mirror, against the log that a broker has now."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.spark.connection import LogClient
from barnabas.spark.errors import DataLossError
from barnabas.spark.mirror.copying.source import SourceClient
from barnabas.spark.schema import DEFAULT_COLUMNS
from barnabas.spark.source.positions import Position
from barnabas.spark.source.reader import stream_reader
from barnabas.testing.process import BrokerProcess
from tests.system.spark.broker import Topics, values

pytestmark = pytest.mark.system

TP = TopicPartition("t", 0)


def test_a_position_up_to_which_only_an_earlier_leader_had_records_is_noticed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        client = LogClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = Topics(broker.bootstrap_servers, client)
        topics.create("t")
        topics.produce("t", values(10))
        before = client.log_view([TP])
        read = Position(before.latest, ids=before.ids, epochs=before.epochs)
        lost = Position({TP: 20}, ids=before.ids, epochs=before.epochs)  # that leader had ten records more
        broker.kill()
        broker.start()
        topics.produce("t", values(30, start=10))
        client.close()
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"}
        columns: Any = SimpleNamespace(names=list(DEFAULT_COLUMNS))
        stream = stream_reader(options, columns)
        end = stream.latestOffset(read.to_json(), stream.getDefaultReadLimit())
        assert Position.from_json(end).epochs[TP] > before.epochs[TP]
        assert [(task.range.start, task.range.end) for task in stream.partitions(read.to_json(), end)] == [(10, 40)]
        with pytest.raises(DataLossError, match="the log has other records from offset 10 on"):
            stream.latestOffset(lost.to_json(), stream.getDefaultReadLimit())
        anew = stream_reader(options | {"failOnDataLoss": "false"}, columns)
        end = anew.latestOffset(lost.to_json(), anew.getDefaultReadLimit())
        assert [(task.range.start, task.range.end) for task in anew.partitions(lost.to_json(), end)] == [(10, 40)]
        mirror = SourceClient({"bootstrap.servers": broker.bootstrap_servers}, ["t"])
        seen = [mirror.read_view(one.offsets, one.epochs, 0) for one in (read, read, lost, lost)]
        assert [view.diverged for view in seen] == [{}, {}, {TP: 10}, {TP: 10}]
        assert seen[0].epochs[TP] > before.epochs[TP]
        mirror.close()
