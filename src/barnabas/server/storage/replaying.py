"""Shell: rebuilds the state of a log's producers from a snapshot and from the batches after it."""

from __future__ import annotations

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.control import EndTxn
from barnabas.server.storage.producers.markers import read_marker
from barnabas.server.storage.producers.snapshots import SnapshotFiles
from barnabas.server.storage.producers.state import ProducerState
from barnabas.server.storage.segments.batches import walk_headers
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.values import AbortedTxn


def apply_batch(state: ProducerState, buf: Buffer, at: int, header: BatchHeader) -> list[AbortedTxn]:
    """Apply one batch to the producer state. Returns the aborted transactions that the batch completes."""
    markers: dict[int, EndTxn] = {}
    if header.producer_id >= 0 and header.is_control:
        marker = read_marker(buf, at, header)
        if marker is not None:
            markers[header.base_offset] = marker
    return state.commit(state.prepare((header,), markers, None), header.next_offset)


def replay_producers(
    state: ProducerState,
    snapshots: SnapshotFiles,
    segments: list[Segment],
    log_start_offset: int,
    up_to: int,
    now_ms: int,
) -> None:
    """Rebuild the producer state as of the offset `up_to`, from the newest snapshot and the batch headers after it."""
    snapshots.load_newest(state, log_start_offset, up_to, now_ms)
    start = state.end_offset
    if start < up_to:
        for segment in segments:
            _replay_segment(state, segment, start, up_to)
    state.end_offset = up_to


def _replay_segment(state: ProducerState, segment: Segment, start: int, up_to: int) -> None:
    if segment.base_offset >= up_to or not segment.size:
        return
    was_open = segment.open_file is not None
    file = segment.file()
    if not was_open:
        segment.release()  # `file` stays open until this function returns; a log may have thousands of segments
    found = segment.find(start, file)
    for position, header in walk_headers(
        file, segment.size if found is None else found.position, segment.size, 1 << 16
    ):
        if header.last_offset >= up_to:
            return
        if header.last_offset < start or header.producer_id < 0:
            continue
        data = segment.read_batch(file, position, header) if header.is_control else b""
        apply_batch(state, data, 0, header)
