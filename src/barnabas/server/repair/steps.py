"""Shell: the steps of `barnabas logs repair`. Nothing is deleted that cannot be rebuilt: files get a new name."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.core.ids import METADATA_TOPIC, TopicPartition
from barnabas.server.repair.findings import CHECKPOINTS, DERIVED, Finding
from barnabas.server.storage import names
from barnabas.server.storage.directory.checkpoints import read_offsets, write_offsets
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.fs import Access, FileSystem, read_file

CUT = "cut off"
SET_ASIDE = "rename"
DELETE = "delete, to be rebuilt"


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One change of one file."""

    path: str
    action: str
    size: int
    """The bytes that are cut off, renamed or deleted."""
    offset: int | None = None
    """The first offset that is lost."""
    position: int = 0

    def as_row(self) -> tuple[object, ...]:
        return self.path, self.action, self.size, "" if self.offset is None else self.offset

    def as_json(self) -> dict[str, object]:
        return {"file": self.path, "action": self.action, "bytes": self.size, "from_offset": self.offset}


def plan(fs: FileSystem, findings: list[Finding]) -> list[RepairStep]:
    """The steps that remove all findings. Of each log, only the first damage counts: everything behind it goes."""
    steps: list[RepairStep] = []
    cut: set[str] = set()
    for one in findings:
        directory, _, name = one.path.rpartition("/")
        damage = one.damage
        if damage is not None and directory not in cut:
            cut.add(directory)
            steps.append(RepairStep(one.path, CUT, damage.size, damage.offset, damage.position))
            steps += _set_aside_later(fs, directory, name)
        elif damage is None and one.state == DERIVED and name not in CHECKPOINTS:
            steps.append(RepairStep(one.path, DELETE, fs.stat(one.path).size))
        elif damage is None and name.endswith(".checkpoint"):
            steps.append(RepairStep(one.path, SET_ASIDE, fs.stat(one.path).size))
    gone = {step.path for step in steps if step.action == SET_ASIDE}
    return [step for step in steps if step.action != DELETE or step.path.rpartition(".")[0] + names.LOG not in gone]


def _set_aside_later(fs: FileSystem, directory: str, damaged: str) -> list[RepairStep]:
    later = [n for n in fs.listdir(directory) if n > damaged and n.endswith(names.LOG) and names.parse_offset_file(n)]
    return [
        RepairStep(f"{directory}/{n}", SET_ASIDE, fs.stat(f"{directory}/{n}").size, int(n.split(".")[0])) for n in later
    ]


def apply(fs: FileSystem, data_dirs: list[str], steps: list[RepairStep]) -> None:
    """Carry out the steps. The caller has locked the data directories. Raises StorageError."""
    for directory in data_dirs:
        fs.unlink(f"{directory}/{names.CLEAN_SHUTDOWN}")  # the next start recovers the logs
        fs.sync_dir(directory)
    for step in steps:
        directory, _, name = step.path.rpartition("/")
        kept = f"{directory}/damaged-{name}"
        if step.action == CUT:
            _lower_recovery_point(fs, directory, step.offset or 0)
            _cut(fs, step, kept)
            _drop_indexes(fs, step.path)
        elif step.action == SET_ASIDE:
            fs.rename(step.path, kept)
            if name.endswith(names.LOG):
                _drop_indexes(fs, step.path)
        else:
            fs.unlink(step.path)
        fs.sync_dir(directory)


def _cut(fs: FileSystem, step: RepairStep, kept: str) -> None:
    data = read_file(fs, step.path)
    copy = fs.open(kept, Access.REPLACE)
    copy.write_at(0, (data[step.position :],))
    copy.sync()
    copy.close()
    file = fs.open(step.path, Access.WRITE)
    file.truncate(step.position)
    file.sync()
    file.close()


def _drop_indexes(fs: FileSystem, log_path: str) -> None:
    for kind in (names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX):
        fs.unlink(log_path.removesuffix(names.LOG) + kind)


def _lower_recovery_point(fs: FileSystem, directory: str, offset: int) -> None:
    """Lower the offset below which everything was on the disk to `offset`, where the log will end."""
    data_dir, _, name = directory.rpartition("/")
    parsed = names.parse_partition_dir(name)
    if parsed is None:
        return
    home = directory if parsed[0].topic == METADATA_TOPIC else data_dir
    path = f"{home}/{names.RECOVERY_POINT_CHECKPOINT}"
    try:
        offsets: dict[TopicPartition, int] = read_offsets(fs, path)
    except StorageError:
        return  # the broker ignores a damaged checkpoint
    if offsets.get(parsed[0], 0) > offset:
        write_offsets(fs, path, {**offsets, parsed[0]: offset})
