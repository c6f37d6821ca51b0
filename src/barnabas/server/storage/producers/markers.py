"""Codec: the end-of-transaction markers in control batches (KIP-98)."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import CONTROL_FLAG, BatchHeader, iter_batches, iter_records
from barnabas.protocol.records.control import EndTxn, parse_control


def read_marker(buf: Buffer, pos: int, header: BatchHeader) -> EndTxn | None:
    """The marker in the control batch at `pos`. None for another control record, or if compaction has emptied the
    batch."""
    for record in iter_records(buf, pos, header):
        value = parse_control(record)
        return value if isinstance(value, EndTxn) else None
    return None


def markers_of(buf: Buffer, batches: Sequence[BatchHeader]) -> dict[int, EndTxn]:
    """The transaction markers among `batches`, by base offset. `buf` contains the same batches in the same order; the
    offsets in `buf` may differ from those in `batches`, which the leader has assigned."""
    for header in batches:
        if header.attributes & CONTROL_FLAG:
            break
    else:
        return {}
    markers = {}
    for (position, original), stored in zip(iter_batches(buf), batches, strict=False):
        if stored.is_control and stored.producer_id >= 0:
            marker = read_marker(buf, position, original)
            if marker is not None:
                markers[stored.base_offset] = marker
    return markers
