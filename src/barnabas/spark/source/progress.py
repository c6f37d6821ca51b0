"""Shell: reads how far a query is behind, from its checkpoint or its consumer group, and from the cluster.

    lags = read_lags({"kafka.bootstrap.servers": "localhost:9092"}, checkpoint="checkpoints/orders")
    lags[0].metrics()                # {"minOffsetsBehindLatest": "0", ...}
    lags[0].partitions               # position, latest offset and lag of each partition

The query need not run. `lag.py` computes the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from barnabas.client.offsets import fetch_group_offsets
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.spark.connection import LogClient, connect
from barnabas.spark.errors import SparkSourceError
from barnabas.spark.given_options import GivenOptions
from barnabas.spark.source.lag import SourceLag, committed_batch, parse_offset_log, source_lag
from barnabas.spark.source.planner import LogOffsets
from barnabas.spark.source.positions import Position, SourceSubscription


def read_lags(
    options: Mapping[str, str], *, checkpoint: str | Path | None = None, group: str | None = None
) -> list[SourceLag]:
    """The lag of each source of a query; `options` are those of its source (`kafka.bootstrap.servers`, ...).

    The positions are those of the last complete micro-batch in `checkpoint`, a directory that this process can read,
    or those that the query has committed for `group` (the option `groupId`). Empty if the query has no position yet.
    Raises SparkSourceError, OptionError and KafkaError.
    """
    client = connect(GivenOptions(options).client_settings())
    if checkpoint is not None:
        positions = [position for position in checkpoint_positions(Path(checkpoint)) if position is not None]
    elif group is not None:
        found = group_position(client, group)
        positions = [] if found is None else [found]
    else:
        raise ValueError("read_lags needs a checkpoint or a group")
    return [_lag_of(client, position) for position in positions]


def checkpoint_positions(checkpoint: Path) -> list[Position | None]:
    """The position of each source after the last complete micro-batch; empty before the first one. Raises
    SparkSourceError if the directory is not a checkpoint that can be read.
    """
    offsets, commits = checkpoint / "offsets", checkpoint / "commits"
    if not offsets.is_dir():
        raise SparkSourceError(
            f"{checkpoint} is not the checkpoint of a streaming query: it has no directory 'offsets'. Give the option"
            " checkpointLocation of the query, as a directory on this machine"
        )
    done = commits.iterdir() if commits.is_dir() else ()
    batch = committed_batch([file.name for file in offsets.iterdir()], [file.name for file in done])
    return [] if batch is None else parse_offset_log((offsets / str(batch)).read_text(encoding="utf-8"))


def group_position(client: LogClient, group: str) -> Position | None:
    """The offsets that a query has committed for its group; None without any. Raises KafkaError."""
    committed = client.run(fetch_group_offsets(client.cluster, group))
    offsets: dict[TopicPartition, int] = {}
    for tp, offset in committed.items():
        if isinstance(offset, KafkaError):
            raise offset
        offsets[tp] = offset.offset
    return Position(offsets) if offsets else None


def _lag_of(client: LogClient, position: Position) -> SourceLag:
    """The lag over all partitions of the position's topics, those that were added since among them."""
    topics = tuple(sorted({tp.topic for tp in position.offsets}))
    view: LogOffsets = client.log_view(client.partitions(SourceSubscription(topics=topics)))
    known = {tp: offset for tp, offset in position.offsets.items() if position.is_of(tp.topic, view.ids)}
    return source_lag(replace(position, offsets=known), view.latest, view.earliest, client.bytes_per_offset(view))
