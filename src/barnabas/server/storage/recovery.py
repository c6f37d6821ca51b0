"""Shell: opening a partition's directory, and recovery after a crash (Kafka's LogLoader).

After a clean shutdown no segment is scanned: the directory is listed, and the end of the log is found in the last few
kilobytes. Exceptions are segments without a usable index, and logs with a corrupt leader epoch checkpoint.

After a crash, every segment from the recovery point on is read batch by batch, the CRCs are checked, and the
indexes are rebuilt. Of the segments below only the last batch is read, to notice missing files. At the first damage
`damage.py` decides. A torn end is cut off with everything behind it, and each cut is logged: the removed records were
not durable on this node, so other replicas have them if they were committed. Bit rot raises DamagedLogError, and
nothing is cut off. A batch whose leader epoch is below the one that the leader epoch checkpoint has for its offset has
reappeared after a truncation, and is cut off too.

Logs whose records decide on other data (the metadata log, the coordinators' logs) are also checked where no recovery is
needed: `LoadRequest.verify_bytes`.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.telemetry import get_logger
from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.server.storage import names
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.damage import Damage
from barnabas.server.storage.epochs import LeaderEpochs
from barnabas.server.storage.errors import CorruptFileError, CorruptIndexError, DamagedLogError, FileMissingError
from barnabas.server.storage.fs import Access, FileSystem, read_file
from barnabas.server.storage.leftovers import remove_leftovers
from barnabas.server.storage.producers.snapshots import SnapshotFiles
from barnabas.server.storage.producers.state import ProducerState
from barnabas.server.storage.replaying import apply_batch, replay_producers
from barnabas.server.storage.scanning import examine, scan_batches
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.segments.segments import Segments
from barnabas.server.storage.values import NOTHING_REPAIRED, RecoveryReport

log = get_logger("barnabas.server.storage")


_SHORT_LOG: Final = 64 * 1024
"""If recovery has checked at most this many bytes of a log, no producer snapshot is written: another recovery can read
the bytes again as quickly."""


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
    verify_bytes: int = 0
    """In segments that need no recovery, the CRCs of this many bytes are checked, the newest segments first."""
    synced_offset: int = 0
    """Everything below this offset was synced, also if the recovery point is lower."""
    contiguous: bool = False
    """Whether the log has neither gaps nor compaction, so that each batch must follow its predecessor exactly."""


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
    """Load the log. Torn ends are cut off. Raises DamagedLogError for bit rot, and StorageError if the disk fails."""
    return _LogLoader(request).load()


class _LogLoader:
    """Loads one log. The methods are the steps, in their order."""

    def __init__(self, request: LoadRequest) -> None:
        self._request = request
        self._fs = request.fs
        self._path = request.path
        self._clean = request.clean
        self._synced_offset = max(request.recovery_point, request.synced_offset)
        """Everything below this offset was synced."""
        self._sound: set[int] = set()
        """The base offsets of the segments that recovery has read."""
        self._checked = self._bytes = self._truncated = self._dropped = self._rebuilt = 0
        self._producers = ProducerState(request.partition, request.producer_id_expiration_ms)
        self._producers_valid = False
        self._recovered_end = 0
        """The end offset of the segment that was recovered last."""
        self._overlapped = False
        """Whether the segment that was recovered last had batches with offsets of the next segment."""
        self._epochs_rebuilt = False
        """Whether the list of leader epochs grows while batches are read, since its file was damaged or lost."""

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
        self._check_lineage()
        self._repair(indexed, with_txns)
        self._check_segment_ends()
        self._verify()
        end = self._find_end()
        self._check_end(end)
        start = request.log_start_offset
        if not request.config.tiered:  # the copies of a tiered log may start below the first local segment
            start = max(start, self._segments.first.base_offset)
        elif self._epochs.entries:  # the list is written whenever the log start is raised; the checkpoint may be older
            start = max(start, min(self._epochs.entries[0].start_offset, end))
        self._epochs.truncate_from_end(end)
        self._epochs.truncate_from_start(start)
        self._load_producers(start, end)
        clean = self._clean and not (self._checked or self._dropped)
        report = RecoveryReport(
            clean, self._checked, self._bytes, self._truncated, self._dropped, indexes_rebuilt=self._rebuilt
        )
        report = NOTHING_REPAIRED if report == NOTHING_REPAIRED else report
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
        data = None
        try:
            data = read_file(self._fs, path) if exists else b""
            return LeaderEpochs.decode(data, path) if exists else LeaderEpochs()
        except (CorruptFileError, FileMissingError) as error:
            # Each batch contains its epoch, so a scan of the whole log restores the list. Apache Kafka creates the file
            # without bytes, and writes it with the first epoch.
            emit = log.info if data == b"" else log.warning
            emit("leader epochs are rebuilt from the log", path=path, reason=str(error))
            self._clean = False
            self._epochs_rebuilt = True
            self._request = _from_start(self._request)
            epochs = LeaderEpochs()
            epochs.changed = True
            return epochs

    def _check_lineage(self) -> None:
        """Raises DamagedLogError if the leader epochs of records that are only in the object store are lost.

        The local segments do not have these epochs, and without them the copies cannot be found (KIP-405)."""
        request, bases = self._request, [segment.base_offset for segment in self._segments]
        if not request.config.tiered or not bases or request.log_start_offset >= bases[0] or self._has_no_records():
            return
        if not self._epochs.entries:
            raise DamagedLogError(
                f"{self._path}/{names.LEADER_EPOCH_CHECKPOINT} is lost, and the records from "
                f"{request.log_start_offset} to {bases[0] - 1} are only in the object store. If another replica leads "
                "the partition, move this directory away, and the broker copies the replica again. Otherwise restore "
                f"the file from the newest object *.{names.LEADER_EPOCH_CHECKPOINT} of the partition."
            )

    def _repair(self, indexed: set[int], with_txns: set[int]) -> None:
        """Recover the segments that may be damaged, and truncate the log at the first damage."""
        if self._has_no_records():
            # An empty log, of which a node may have thousands: there is nothing to check. After a power failure its
            # indexes may have outlived its records.
            if not self._clean:
                self._segments.active.unlink_indexes()
            return
        suspects = [] if self._clean else self._segments.starting_from(self._request.recovery_point)
        suspects = [s for s in self._segments if s in suspects or not self._sane(s, indexed, with_txns)]
        for segment in suspects:
            if segment not in self._segments:
                continue  # deleted, because an earlier segment was truncated
            if not self._producers_valid or self._producers.end_offset != segment.base_offset:
                self._rebuild_up_to(segment)
            removed = self._recover(segment)
            self._truncated += removed
            if (removed and not self._overlapped) or self._ends_early(segment):
                self._drop_after(segment)
            segment.cool()
            if self._segments.after(segment) is not None:
                self._producers.end_offset = max(self._producers.end_offset, segment.base_offset)
                self._snapshots.take(self._producers)

    def _has_no_records(self) -> bool:
        """Whether the log is empty, and was so at its recovery point."""
        segments = self._segments
        return len(segments) == 1 and not segments.active.size and self._synced_offset <= segments.active.base_offset

    def _ends_early(self, segment: Segment) -> bool:
        """Whether the segment lacks its last batches, while the next segment reached the disk before the crash. Without
        compaction a log has no gaps; a follower that kept the later segments would never fetch the missing batches.

        Raises DamagedLogError if the missing batches had been synced."""
        following = self._segments.after(segment)
        if self._clean or self._request.config.compact or following is None:
            return False
        end = max(self._recovered_end, self._request.cleaned_offset)
        if end >= following.base_offset:
            return False
        if end < self._synced_offset:
            raise DamagedLogError(_missing(segment, end, following.base_offset))
        return True

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
        start = self._request.log_start_offset
        if not self._request.config.tiered:  # the snapshot at a tiered log's local start has the producers below
            start = max(start, self._segments.first.base_offset)
        before = [s for s in self._segments if s.base_offset < segment.base_offset]
        replay_producers(self._producers, self._snapshots, before, start, segment.base_offset, self._request.now_ms)
        self._producers_valid = True

    def _recover(self, segment: Segment) -> int:
        """Scan one segment, rebuild its indexes, and cut off a torn end. Returns the bytes removed.

        Raises DamagedLogError.
        """
        segment.reset_indexes()
        size = segment.size
        valid = 0
        end = segment.base_offset
        epoch = -1
        reason, torn = "", False
        following = self._segments.after(segment)
        self._overlapped = False
        for position, buf, at, header in scan_batches(segment):
            reason = self._out_of_order(segment, header, end)
            torn = not reason and self._is_from_before_truncation(header)
            if reason or torn:
                reason = reason or f"leader epoch {header.partition_leader_epoch} is older than that of offset {end}"
                break
            if following is not None and header.base_offset >= following.base_offset:
                # The log was truncated, and the next segment began there. The power failed before the truncation was
                # durable, so that the truncated batches are back.
                reason = f"the next segment begins at offset {following.base_offset}"
                torn = self._overlapped = True
                break
            end = header.next_offset
            segment.index_batch(header, position)
            valid = position + header.size
            epoch = header.partition_leader_epoch
            latest = self._epochs.latest
            if header.partition_leader_epoch >= 0 and (latest is None or header.partition_leader_epoch > latest.epoch):
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)
            for txn in apply_batch(self._producers, buf, at, header):
                segment.txn_index.append(txn)
        if valid < size:
            later = self._later(segment)
            self._cut(segment, examine(segment, valid, end, later, reason=reason, torn=torn, leader_epoch=epoch))
        short = segment.is_short and self._segments.active is segment
        if short:
            segment.unlink_indexes()  # cheap to rebuild; each file costs time at a start
        else:
            segment.seal()
        self._sound.add(segment.base_offset)
        self._recovered_end = end
        if short and self._clean and valid == size:
            return 0  # no damage: an earlier recovery has left the segment without indexes
        self._checked += 1
        self._bytes += size
        self._rebuilt += 1
        return size - valid

    def _out_of_order(self, segment: Segment, header: BatchHeader, end: int) -> str:
        """Why the batch cannot follow offset `end`, or an empty string."""
        first = header.base_offset
        if first < end or (self._request.contiguous and first != end):
            return f"the batch of offset {first} is found where offset {end} is expected"
        if header.last_offset_delta < 0 or not segment.takes_offset(header.last_offset):
            return f"the batch of offset {first} ends at {header.last_offset}"
        if self._request.contiguous and not self._epochs_rebuilt and (self._clean or first < self._synced_offset):
            known = self._epochs.epoch_for_offset(first)
            if known not in (None, header.partition_leader_epoch):
                return f"the batch has leader epoch {header.partition_leader_epoch} instead of {known}"
        return ""

    def _later(self, segment: Segment) -> list[Segment]:
        return [s for s in self._segments if s.base_offset > segment.base_offset and s.size]

    def _cut(self, segment: Segment, damage: Damage) -> None:
        """Cut off a torn end. Raises DamagedLogError, and changes nothing, if the damage is bit rot."""
        self._raise_if_rot(damage)
        log.warning(
            "the torn end of a log was cut off",
            file=damage.path, position=damage.position, bytes=damage.size, from_offset=damage.offset,
            reason=damage.reason, behind=damage.describe_behind(),
        )  # fmt: skip
        file = segment.file(Access.WRITE)
        file.truncate(damage.position)
        # Otherwise, after a power failure, the old end of the page may be back in front of new batches that are whole.
        file.sync()
        segment.size = damage.position

    def _raise_if_rot(self, damage: Damage) -> None:
        if damage.is_rot(self._synced_offset):
            synced = f" Everything below offset {self._synced_offset} was on the disk." if self._synced_offset else ""
            raise DamagedLogError(f"{damage.describe()}{synced} Nothing was cut off.")

    def _check_segment_ends(self) -> None:
        """After a crash, check that each segment that was not read ends where the next one begins: otherwise one of
        them was deleted or shortened. Reads the end of each segment. Raises DamagedLogError.

        After a clean shutdown the sizes of all segments are compared (`directory/segment_sizes.py`). Compacted logs may
        end anywhere.
        """
        request = self._request
        if self._clean or request.config.compact:
            return
        for segment in self._segments:
            following = self._segments.after(segment)
            if following is None or segment.base_offset in self._sound:
                continue
            if following.base_offset > max(request.log_start_offset, request.cleaned_offset):
                end = self._end_of(segment)
                if end > following.base_offset:
                    end = self._recover_earlier(segment)
                segment.cool()
                if end != following.base_offset:
                    raise DamagedLogError(_missing(segment, end, following.base_offset))

    def _recover_earlier(self, segment: Segment) -> int:
        """Recover a segment below the recovery point, because a truncation of it was lost. Returns its end offset."""
        last_end = self._recovered_end
        self._rebuild_up_to(segment)
        self._truncated += self._recover(segment)
        end, self._recovered_end = self._recovered_end, last_end
        self._producers_valid = False
        return end

    def _end_of(self, segment: Segment) -> int:
        """The offset after the last batch. Raises DamagedLogError if the segment ends inside a batch."""
        try:
            try:
                return segment.next_offset() if segment.size else segment.base_offset
            except (CorruptIndexError, CorruptBatchError, FileMissingError):
                # the index may be damaged, and lead into the middle of a batch, or have more than the log
                segment.rebuild_indexes()
                return segment.next_offset()
        except CorruptBatchError as error:
            raise DamagedLogError(f"{error}. All of this file was on the disk. Nothing was cut off.") from None

    def _verify(self) -> None:
        """Check the CRCs of the segments that recovery has not read. Raises DamagedLogError."""
        left = self._request.verify_bytes
        following: Segment | None = None
        for segment in reversed(list(self._segments)):
            if left > 0 and segment.base_offset not in self._sound:
                left -= segment.size
                self._verify_segment(segment, following)
                segment.cool()
            following = segment

    def _verify_segment(self, segment: Segment, following: Segment | None) -> None:
        valid, end = 0, segment.base_offset
        reason = ""
        for position, _, _, header in scan_batches(segment):
            reason = self._out_of_order(segment, header, end)
            if reason:
                break
            valid, end = position + header.size, header.next_offset
        if valid < segment.size:
            damage = examine(segment, valid, end, self._later(segment), reason=reason)
            raise DamagedLogError(f"{damage.describe()} All of this file was on the disk. Nothing was cut off.")
        if self._request.contiguous and following is not None and end != following.base_offset:
            raise DamagedLogError(_missing(segment, end, following.base_offset))

    def _check_end(self, end: int) -> None:
        """Raises DamagedLogError if a contiguous log ends before records that were synced.

        Other logs may end there: a truncation removes the whole batch that contains its offset."""
        if self._request.contiguous and end < self._synced_offset:
            raise DamagedLogError(
                f"{self._path} ends at offset {end}, but everything below offset {self._synced_offset} was on the "
                f"disk: a segment was deleted or shortened, or {names.RECOVERY_POINT_CHECKPOINT} is damaged."
            )

    def _is_from_before_truncation(self, header: BatchHeader) -> bool:
        """Whether the leader epochs have a later epoch at the batch's offset: the log was truncated and written again,
        and the power failed before the new batches were durable. With the old batch, this log would wrongly match the
        leader's."""
        known = self._epochs.epoch_for_offset(header.base_offset)
        return known is not None and 0 <= header.partition_leader_epoch < known

    def _drop_after(self, segment: Segment) -> None:
        for later in [s for s in self._segments if s.base_offset > segment.base_offset]:
            log.warning("a segment behind a torn end was deleted", file=later.file_path(names.LOG), bytes=later.size)
            self._segments.remove(later)
            later.unlink()
            self._dropped += 1

    def _find_end(self) -> int:
        """The log end offset. If the log ends below its start offset, all segments are replaced by an empty one."""
        start = self._request.log_start_offset
        if len(self._segments):
            active = self._segments.active
            try:
                if active.base_offset in self._sound:
                    end = self._recovered_end
                else:
                    end = active.next_offset() if active.size else active.base_offset
            except (CorruptIndexError, CorruptBatchError):
                # The segment is corrupt, also if the last shutdown was clean.
                self._rebuild_up_to(active)
                self._truncated += self._recover(active)
                end = active.next_offset()
            active.cool()  # thousands of idle partitions should hold no descriptors
            if end >= start:
                return end
            if self._request.clean and start > self._request.recovery_point:  # both end at the log's end
                raise DamagedLogError(
                    f"{self._path} ends at offset {end}, below its log start offset {start}: a segment was deleted or "
                    f"shortened, or {names.LOG_START_CHECKPOINT} of the data directory is damaged."
                )
            for segment in list(self._segments):
                log.warning(
                    "a segment below the log start offset was deleted",
                    file=segment.file_path(names.LOG), bytes=segment.size, log_start_offset=start,
                )  # fmt: skip
                self._segments.remove(segment)
                segment.unlink()
                self._dropped += 1
            self._epochs.clear()
            self._producers_valid = False
        self._check_end(start)
        self._segments.add(self._segment(start).create())
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
        if self._bytes > _SHORT_LOG:
            self._snapshots.take(self._producers)  # so that recovery after another crash need not replay these batches


def _from_start(request: LoadRequest) -> LoadRequest:
    return replace(request, clean=False, recovery_point=0)


def _missing(segment: Segment, end: int, following: int) -> str:
    return (
        f"{segment.file_path(names.LOG)} ends at offset {end}, and the next segment begins at offset {following}: the "
        "records between them were on the disk, and a file was deleted or shortened. Nothing was cut off."
    )
