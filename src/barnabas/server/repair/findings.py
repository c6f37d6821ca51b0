"""Shell: walks the files of a data directory and checks each of them against the others, without a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from barnabas.core.errors import BarnabasError
from barnabas.core.ids import METADATA_TOPIC, TopicPartition
from barnabas.protocol.records.batch import BatchHeader
from barnabas.server.quorum.quorum_state import FILE_NAME as QUORUM_STATE
from barnabas.server.quorum.quorum_state import parse_quorum_state
from barnabas.server.quorum.snapshot_files import list_snapshots, load_snapshot, name_of
from barnabas.server.storage import names
from barnabas.server.storage.damage import Damage
from barnabas.server.storage.directory.checkpoints import read_offsets
from barnabas.server.storage.directory.identity import read_meta_properties, read_topic_id
from barnabas.server.storage.epochs import LeaderEpochs
from barnabas.server.storage.errors import FileMissingError, StorageError
from barnabas.server.storage.fs import FileSystem, read_file
from barnabas.server.storage.producers.snapshots import decode_snapshot
from barnabas.server.storage.scanning import examine, scan_batches
from barnabas.server.storage.segments.indexes import OffsetIndex, TimeIndex
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.segments.txn_index import TxnIndex

ROT = "damaged"
TORN = "torn end"
DERIVED = "rebuilt"
CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT,
    names.CLEANER_CHECKPOINT,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """One damaged file. `state` is ROT, TORN (the next start cuts it off, or a running broker is writing there), or
    DERIVED (a damaged file that can be rebuilt from the log)."""

    path: str
    state: str
    detail: str
    damage: Damage | None = None

    def as_json(self) -> dict[str, object]:
        position = None if self.damage is None else self.damage.position
        return {"file": self.path, "state": self.state, "position": position, "detail": self.detail}


def total_bytes(fs: FileSystem, directory: str) -> int:
    """The size of all segments in a data directory, for the progress bar."""
    return sum(
        fs.stat(f"{path}/{name}").size
        for path, _ in partition_dirs(fs, directory)
        for name in fs.listdir(path)
        if name.endswith(names.LOG)
    )


def partition_dirs(fs: FileSystem, directory: str) -> list[tuple[str, TopicPartition]]:
    """The partitions' directories, without those that are being deleted."""
    found = []
    for name in fs.listdir(directory):
        parsed = names.parse_partition_dir(name)
        if parsed is not None and parsed[1] != names.DIR_DELETE and fs.stat(f"{directory}/{name}").is_dir:
            found.append((f"{directory}/{name}", parsed[0]))
    return found


def check_directory(fs: FileSystem, directory: str, on_bytes: Callable[[int], None]) -> Iterator[Finding]:
    """Every finding in a data directory. `on_bytes` is called with the size of each segment that was read."""
    try:
        read_meta_properties(fs, directory)
    except StorageError as error:
        yield Finding(f"{directory}/{names.META_PROPERTIES}", ROT, str(error))
    recovery_points: dict[TopicPartition, int] = {}
    for name in CHECKPOINTS:
        try:
            offsets = read_offsets(fs, f"{directory}/{name}")
        except StorageError as error:
            yield Finding(f"{directory}/{name}", DERIVED, f"{error}; the broker ignores the file")
            continue
        if name == names.RECOVERY_POINT_CHECKPOINT:
            recovery_points = offsets
    for path, partition in partition_dirs(fs, directory):
        yield from check_partition(fs, path, partition, recovery_points.get(partition, 0), on_bytes)


def check_partition(
    fs: FileSystem, path: str, partition: TopicPartition, recovery_point: int, on_bytes: Callable[[int], None]
) -> Iterator[Finding]:
    """Every finding in one partition's directory."""
    listing = fs.listdir(path)
    is_metadata = partition.topic == METADATA_TOPIC
    if is_metadata:
        yield from _check_metadata_files(fs, path, listing)
        try:
            recovery_point = read_offsets(fs, f"{path}/{names.RECOVERY_POINT_CHECKPOINT}").get(partition, 0)
        except StorageError as error:
            yield Finding(f"{path}/{names.RECOVERY_POINT_CHECKPOINT}", DERIVED, str(error))
    else:
        yield from _check_topic_id(fs, path, listing)
    epochs = LeaderEpochs()
    epochs_path = f"{path}/{names.LEADER_EPOCH_CHECKPOINT}"
    try:
        epochs = LeaderEpochs.decode(read_file(fs, epochs_path), epochs_path)
    except FileMissingError:
        pass
    except StorageError as error:
        yield Finding(epochs_path, DERIVED, str(error))
    for name in listing:
        if name.endswith(names.SNAPSHOT) and names.parse_offset_file(name) is not None:
            try:
                decode_snapshot(read_file(fs, f"{path}/{name}"), name)
            except FileMissingError:
                pass
            except StorageError as error:
                yield Finding(f"{path}/{name}", DERIVED, str(error))
    yield from _check_segments(fs, path, listing, epochs, recovery_point, on_bytes, contiguous=is_metadata)


def _check_topic_id(fs: FileSystem, path: str, listing: list[str]) -> Iterator[Finding]:
    file = f"{path}/{names.PARTITION_METADATA}"
    is_used = any(name.endswith(names.LOG) and fs.stat(f"{path}/{name}").size for name in listing)
    try:
        if read_topic_id(fs, path) is None and is_used:
            yield Finding(path, ROT, f"{names.PARTITION_METADATA} is missing, so the topic of the records is unknown")
    except StorageError as error:  # the next start writes the id of a log that has never had a record
        yield Finding(file, ROT if is_used else DERIVED, str(error))


def _check_metadata_files(fs: FileSystem, path: str, listing: list[str]) -> Iterator[Finding]:
    for snapshot_id in list_snapshots(fs, path):
        try:
            load_snapshot(fs, path, name_of(snapshot_id))
        except FileMissingError:
            pass
        except BarnabasError as error:
            yield Finding(f"{path}/{name_of(snapshot_id)}", ROT, str(error))
    if QUORUM_STATE in listing:
        try:
            parse_quorum_state(read_file(fs, f"{path}/{QUORUM_STATE}").decode("utf-8", "replace"))
        except BarnabasError as error:
            yield Finding(f"{path}/{QUORUM_STATE}", ROT, str(error))


def _check_segments(
    fs: FileSystem,
    path: str,
    listing: list[str],
    epochs: LeaderEpochs,
    recovery_point: int,
    on_bytes: Callable[[int], None],
    *,
    contiguous: bool,
) -> Iterator[Finding]:
    bases = sorted(p[0] for n in listing if (p := names.parse_offset_file(n)) and p[1] == names.LOG and not p[2])
    segments = [Segment(fs, path, base, index_interval_bytes=4096, created_ms=0) for base in bases]
    end = bases[0] if bases else 0
    for number, segment in enumerate(segments):
        if contiguous and segment.base_offset != end:
            yield Finding(path, ROT, f"offsets {end} to {segment.base_offset - 1} are missing: a file was deleted")
        try:
            scan = _Scan(segment, epochs, contiguous=contiguous)
        except FileMissingError:
            continue  # retention has deleted the segment
        on_bytes(segment.size)
        end = scan.end
        if scan.valid < segment.size:
            later = [one for one in segments[number + 1 :] if one.size]
            damage = examine(segment, scan.valid, scan.end, later, reason=scan.reason, leader_epoch=scan.leader_epoch)
            state = ROT if damage.is_rot(recovery_point) else TORN
            yield Finding(damage.path, state, f"{damage.reason}. {damage.describe_behind()}", damage)
        yield from _check_indexes(fs, segment, scan)
        segment.cool()
    if contiguous and end < recovery_point:
        yield Finding(path, ROT, f"the log ends at offset {end}; everything below {recovery_point} was on the disk")


class _Scan:
    """The result of reading a segment's batches: the end of the last whole batch, and the index entries that the
    batches should have."""

    def __init__(self, segment: Segment, epochs: LeaderEpochs, *, contiguous: bool) -> None:
        self.end = segment.base_offset
        self.valid = 0
        self.leader_epoch = -1
        """The leader epoch of the last whole batch."""
        self.reason = ""
        self.last_offsets: dict[int, int] = {}
        """The last offset of the batch at a position."""
        self.largest_timestamps: dict[int, int] = {}
        """The largest timestamp up to the last offset of a batch."""
        self.wrong_epoch: BatchHeader | None = None
        largest = -1
        for position, _, _, header in scan_batches(segment):
            if header.base_offset < self.end or (contiguous and header.base_offset != self.end):
                self.reason = f"the batch of offset {header.base_offset} is found where offset {self.end} is expected"
                return
            known = epochs.epoch_for_offset(header.base_offset)
            if known not in (None, header.partition_leader_epoch) and self.wrong_epoch is None:
                self.wrong_epoch = header
            largest = max(largest, header.max_timestamp)
            self.last_offsets[position] = header.last_offset
            self.largest_timestamps[header.last_offset] = largest
            self.valid, self.end = position + header.size, header.next_offset
            self.leader_epoch = header.partition_leader_epoch


def _check_indexes(fs: FileSystem, segment: Segment, scan: _Scan) -> Iterator[Finding]:
    if scan.wrong_epoch is not None:
        header = scan.wrong_epoch
        yield Finding(
            segment.file_path(names.LOG), ROT,
            f"the batch of offset {header.base_offset} has leader epoch {header.partition_leader_epoch}, which "
            f"{names.LEADER_EPOCH_CHECKPOINT} contradicts",
        )  # fmt: skip
    base = segment.base_offset
    for kind in (names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX):
        path = segment.file_path(kind)
        try:
            data = read_file(fs, path)
            if kind == names.TXN_INDEX:
                TxnIndex.decode(base, data)
                continue
            if kind == names.OFFSET_INDEX:
                entries = OffsetIndex.decode(base, data, segment.size).entries()
                bad = [f"offset {o}" for o, p in entries if p < scan.valid and scan.last_offsets.get(p) != o]
            else:
                times = TimeIndex.decode(base, data).entries()
                bad = [f"offset {o}" for t, o in times if o < scan.end and scan.largest_timestamps.get(o, t) != t]
        except FileMissingError:
            continue
        except StorageError as error:
            yield Finding(path, DERIVED, str(error))
            continue
        if bad:
            yield Finding(path, DERIVED, f"{len(bad)} entries contradict the log, first {bad[0]}")
