"""Shell: opening a partition's directory, and recovery after a crash (Kafka's LogLoader).

After a clean shutdown no segment is scanned: the directory is listed, and the end of the log is found in the last few
kilobytes. Exceptions are segments without a usable index, and logs with a corrupt leader epoch checkpoint.

After a crash, every segment from the recovery point on is read batch by batch, the CRCs are checked, and the
indexes are rebuilt. The log is truncated at the first corrupt batch, and also at the first batch whose leader epoch is
below the one that the leader epoch checkpoint has for its offset: such a batch has reappeared after a truncation. The
removed records were not durable on this node, so other replicas have them if they were committed.

Files of interrupted operations are recognized by their second suffix. `.deleted` and `.cleaned` files are deleted.
`.swap` files belong to a completed compaction: the old segments are deleted, and the `.swap` files take their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import BatchHeader, check_crc, iter_batches
from barnabas.protocol.records.control import EndTxn
from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.server.storage import names
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.epochs import LeaderEpochs
from barnabas.server.storage.errors import CorruptFileError, CorruptIndexError, FileMissingError
from barnabas.server.storage.fs import Access, FileSystem, read_file
from barnabas.server.storage.producers.markers import read_marker
from barnabas.server.storage.producers.snapshots import SnapshotFiles
from barnabas.server.storage.producers.state import ProducerState
from barnabas.server.storage.segments.batches import walk_headers
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.segments.segments import Segments
from barnabas.server.storage.values import AbortedTxn, RecoveryReport

_CHUNK: Final = 4 << 20


class LoadRequest(Struct, frozen=True):
    """The directory of a log, and the facts about the log that are stored outside it."""

    fs: FileSystem
    path: str
    config: LogConfig
    partition: str
    now_ms: int
    clean: bool
    recovery_point: int
    log_start_offset: int
    producer_id_expiration_ms: int
    cleaned_offset: int = 0
    """Below this offset the log may have gaps from compaction, also if cleanup.policy has changed since."""


class LoadedLog(Struct):
    """The parts of a log after loading and recovery."""

    segments: Segments
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: SnapshotFiles
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    report: RecoveryReport


def load(request: LoadRequest) -> LoadedLog:
    """Load the log. Corrupt data are repaired. Raises StorageError if the disk fails."""
    return _LogLoader(request).load()


class _LogLoader:
    """Loads one log. The methods are the steps, in their order."""

    def __init__(self, request: LoadRequest) -> None:
        self._request = request
        self._fs = request.fs
        self._path = request.path
        self._clean = request.clean
        self._checked = self._bytes = self._truncated = self._dropped = self._rebuilt = 0
        self._producers = ProducerState(request.partition, request.producer_id_expiration_ms)
        self._producers_valid = False
        self._recovered_end = 0
        """The end offset of the segment that was recovered last."""

    def load(self) -> LoadedLog:
        request = self._request
        listing = remove_leftovers(self._fs, self._path)
        found = {name: parsed for name in listing if (parsed := names.parse_offset_file(name)) is not None}
        self._snapshots = SnapshotFiles(
            self._fs, self._path, [o for o, kind, _ in found.values() if kind == names.SNAPSHOT]
        )
        self._epochs = self._load_epochs(names.LEADER_EPOCH_CHECKPOINT in listing)
        self._segments = Segments(self._segment(o) for o, kind, _ in found.values() if kind == names.LOG)
        indexed = {o for o, kind, _ in found.values() if kind == names.OFFSET_INDEX}
        with_txns = {o for o, kind, _ in found.values() if kind == names.TXN_INDEX}
        self._repair(indexed, with_txns)
        end = self._find_end()
        start = max(request.log_start_offset, self._segments.first.base_offset)
        self._epochs.truncate_from_end(end)
        self._epochs.truncate_from_start(start)
        self._load_producers(start, end)
        clean = self._clean and not (self._checked or self._dropped)
        report = RecoveryReport(
            clean, self._checked, self._bytes, self._truncated, self._dropped, indexes_rebuilt=self._rebuilt
        )
        recovery_point = end if clean else min(request.recovery_point, end)
        return LoadedLog(
            self._segments, self._epochs, self._producers, self._snapshots, start, end, recovery_point, report
        )

    def _segment(self, base_offset: int) -> Segment:
        request = self._request
        return Segment(
            self._fs,
            self._path,
            base_offset,
            index_interval_bytes=request.config.index_interval_bytes,
            created_ms=request.now_ms,
        )

    def _load_epochs(self, exists: bool) -> LeaderEpochs:
        path = f"{self._path}/{names.LEADER_EPOCH_CHECKPOINT}"
        try:
            return LeaderEpochs.decode(read_file(self._fs, path), path) if exists else LeaderEpochs()
        except (CorruptFileError, FileMissingError):
            # Each batch contains its epoch, so a scan of the whole log restores the list.
            self._clean = False
            self._request = _from_start(self._request)
            epochs = LeaderEpochs()
            epochs.changed = True
            return epochs

    def _repair(self, indexed: set[int], with_txns: set[int]) -> None:
        """Recover the segments that may be damaged, and truncate the log at the first damage."""
        suspects = [] if self._clean else self._segments.starting_from(self._request.recovery_point)
        suspects = [s for s in self._segments if s in suspects or not self._sane(s, indexed, with_txns)]
        for segment in suspects:
            if segment not in self._segments:
                continue  # deleted, because an earlier segment was truncated
            if not self._producers_valid or self._producers.end_offset != segment.base_offset:
                self._rebuild_up_to(segment)
            removed = self._recover(segment)
            self._truncated += removed
            if removed or self._ends_early(segment):
                self._drop_after(segment)
            segment.cool()
            if self._segments.after(segment) is not None:
                self._producers.end_offset = max(self._producers.end_offset, segment.base_offset)
                self._snapshots.take(self._producers)

    def _ends_early(self, segment: Segment) -> bool:
        """Whether the segment lacks its last batches, while the next segment reached the disk before the crash. Without
        compaction a log has no gaps; a follower that kept the later segments would never fetch the missing batches."""
        following = self._segments.after(segment)
        return (
            not self._clean
            and not self._request.config.compact
            and following is not None
            and max(self._recovered_end, self._request.cleaned_offset) < following.base_offset
        )

    def _sane(self, segment: Segment, indexed: set[int], with_txns: set[int]) -> bool:
        """Whether the files of a cleanly closed segment can be used without recovery. Kafka makes the same checks."""
        if segment.base_offset not in indexed:
            return False
        if segment.base_offset in with_txns:
            try:
                _ = segment.txn_index
            except CorruptIndexError:
                return False
        return True

    def _rebuild_up_to(self, segment: Segment) -> None:
        """Rebuild the producer state as of the start of `segment`, which the recovery of its transaction index
        needs."""
        start = max(self._request.log_start_offset, self._segments.first.base_offset)
        before = [s for s in self._segments if s.base_offset < segment.base_offset]
        replay_producers(self._producers, self._snapshots, before, start, segment.base_offset, self._request.now_ms)
        self._producers_valid = True

    def _recover(self, segment: Segment) -> int:
        """Scan one segment, rebuild its indexes, and truncate it at the first bad batch. Returns the bytes removed."""
        segment.reset_indexes()
        size = segment.size
        valid = 0
        end = segment.base_offset
        for position, buf, at, header in scan_batches(segment):
            if header.base_offset < end or header.last_offset_delta < 0 or not segment.takes_offset(header.last_offset):
                break
            if self._is_from_before_truncation(header):
                break
            end = header.next_offset
            segment.index_batch(header, position)
            valid = position + header.size
            latest = self._epochs.latest
            if header.partition_leader_epoch >= 0 and (latest is None or header.partition_leader_epoch > latest.epoch):
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)
            for txn in apply_batch(self._producers, buf, at, header):
                segment.txn_index.append(txn)
        if valid < size:
            segment.file(Access.WRITE).truncate(valid)
            segment.size = valid
        segment.seal()
        self._recovered_end = end
        self._checked += 1
        self._bytes += size
        self._rebuilt += 1
        return size - valid

    def _is_from_before_truncation(self, header: BatchHeader) -> bool:
        """Whether the leader epochs have a later epoch at the batch's offset: the log was truncated and written again,
        and the power failed before the new batches were durable. With the old batch, this log would wrongly match the
        leader's."""
        known = self._epochs.epoch_for_offset(header.base_offset)
        return known is not None and 0 <= header.partition_leader_epoch < known

    def _drop_after(self, segment: Segment) -> None:
        for later in [s for s in self._segments if s.base_offset > segment.base_offset]:
            self._segments.remove(later)
            later.unlink()
            self._dropped += 1

    def _find_end(self) -> int:
        """The log end offset. If the log ends below its start offset, all segments are replaced by an empty one."""
        start = self._request.log_start_offset
        if len(self._segments):
            active = self._segments.active
            try:
                end = active.next_offset()
            except (CorruptIndexError, CorruptBatchError):
                # The segment is corrupt, also if the last shutdown was clean.
                self._rebuild_up_to(active)
                self._truncated += self._recover(active)
                end = active.next_offset()
            active.cool()  # thousands of idle partitions should hold no descriptors
            if end >= start:
                return end
            for segment in list(self._segments):
                self._segments.remove(segment)
                segment.unlink()
                self._dropped += 1
            self._epochs.clear()
            self._producers_valid = False
        request = self._request
        self._segments.add(
            Segment.create(
                self._fs,
                self._path,
                start,
                index_interval_bytes=request.config.index_interval_bytes,
                created_ms=request.now_ms,
            )
        )
        return start

    def _load_producers(self, start: int, end: int) -> None:
        self._snapshots.delete_strays(self._segments.bases)
        self._snapshots.delete_outside(start, end)
        now_ms = self._request.now_ms
        if self._clean and not self._snapshots.offsets:
            self._producers.reset(end)  # after a clean shutdown, no snapshot means that there were no producers
        elif not self._producers_valid or self._producers.end_offset != end:
            replay_producers(self._producers, self._snapshots, list(self._segments), start, end, now_ms)
        self._producers.end_offset = end
        if self._checked:
            self._snapshots.take(self._producers)  # so that recovery after another crash need not replay these batches


def _from_start(request: LoadRequest) -> LoadRequest:
    return replace(request, clean=False, recovery_point=0)


def scan_batches(segment: Segment) -> Iterator[tuple[int, Buffer, int, BatchHeader]]:
    """(position in the file, buffer, position in the buffer, header) of each batch, up to the first corrupt one."""
    file = segment.file()
    size = segment.size
    position = 0
    length = _CHUNK
    while position < size:
        buf = memoryview(file.read_at(position, min(length, size - position)))
        at = 0
        try:
            for at, header in iter_batches(buf):
                check_crc(buf, at, header)
                yield position + at, buf, at, header
                at += header.size
        except CorruptBatchError:
            return
        if at:
            position, length = position + at, _CHUNK
            continue
        # The buffer contains no whole batch: the batch is larger than the chunk, or incomplete.
        needed = 12 + int.from_bytes(buf[8:12], "big", signed=True) if len(buf) >= 12 else 0
        if not len(buf) < needed <= size - position:
            return
        length = needed


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
    if segment.base_offset >= up_to:
        return
    was_open = segment.open_file is not None
    file = segment.file()
    if not was_open:
        segment.release()  # `file` stays open until this function returns; a log may have thousands of segments
    for position, header in walk_headers(file, segment.lookup(start), segment.size, 1 << 16):
        if header.last_offset >= up_to:
            return
        if header.last_offset < start or header.producer_id < 0:
            continue
        data = segment.read_batch(file, position, header) if header.is_control else b""
        apply_batch(state, data, 0, header)


def remove_leftovers(fs: FileSystem, path: str) -> list[str]:
    """Finish or undo interrupted operations. Returns the names of the remaining files."""
    listing = fs.listdir(path)
    if not any(name.endswith((names.DELETED, names.CLEANED, names.SWAP, names.TEMPORARY)) for name in listing):
        return listing
    cleaned = [p[0] for name in listing if (p := names.parse_offset_file(name)) and p[2] == names.CLEANED]
    # Compaction renames its segments to .swap from the last to the first. If a .cleaned segment is left, the .swap
    # files at or above its offset are an incomplete set (KAFKA-6264).
    incomplete_from = min(cleaned, default=None)
    for name in listing:
        parsed = names.parse_offset_file(name)
        second = parsed[2] if parsed else ""
        torn_swap = (
            parsed is not None and second == names.SWAP and incomplete_from is not None and parsed[0] >= incomplete_from
        )
        if second in (names.DELETED, names.CLEANED) or torn_swap or name.endswith(names.TEMPORARY):
            fs.unlink(f"{path}/{name}")
    _finish_swaps(fs, path, fs.listdir(path))
    fs.sync_dir(path)
    return fs.listdir(path)


def _finish_swaps(fs: FileSystem, path: str, listing: list[str]) -> None:
    swaps = [(name, p[0], p[1]) for name in listing if (p := names.parse_offset_file(name)) and p[2] == names.SWAP]
    bases = [base for _, base, kind in swaps if kind == names.LOG]
    if bases:
        low, high = min(bases), max(bases)
        for base in bases:
            swap = Segment(fs, path, base, index_interval_bytes=4096, created_ms=0, suffix=names.SWAP)
            for _, header in walk_headers(swap.file(), 0, swap.size):
                high = max(high, header.next_offset)
        for name in listing:
            parsed = names.parse_offset_file(name)
            if parsed and not parsed[2] and parsed[1] != names.SNAPSHOT and low <= parsed[0] < high:
                fs.unlink(f"{path}/{name}")
        fs.sync_dir(path)
    for name, _, kind in swaps:
        if kind != names.LOG:
            fs.rename(f"{path}/{name}", f"{path}/{name.removesuffix(names.SWAP)}")
    for name, _, kind in swaps:  # the log files last, because their suffix shows that the operation is unfinished
        if kind == names.LOG:
            fs.rename(f"{path}/{name}", f"{path}/{name.removesuffix(names.SWAP)}")
