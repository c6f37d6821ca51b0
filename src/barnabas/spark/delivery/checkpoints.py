"""Shell: what the driver reads of a query's checkpoint: the query's id, whether it has committed a micro-batch, and the
entries of `offsets`, by which ledgers know a micro-batch (`identity.py`).

Spark writes `<checkpoint>/metadata`, {"id":"6f1e…"}, before the first micro-batch. Planning on the driver knows the
checkpoint's place, but not the id. This package keeps beside Spark's files:

    _barnabas/parents.json       ["6f1e…"]: the queries from whose checkpoints this one was forked, the nearest first
    _barnabas/published.json     the newest micro-batch that each target has confirmed, by the target
    _barnabas/conflicts.json     what ledgers had when they refused a micro-batch: a `BatchConflict` for each target
    _barnabas/apply-again.json   the conflicts in which the user has chosen the checkpoint's micro-batches
    _barnabas/replaced/          entries of `offsets` and `commits` that a repair has replaced

Spark reads the place as a `org.apache.hadoop.fs.Path`, which decodes no percent signs: the checkpoint
`file:///data/my%20lines` is the directory `/data/my%20lines`. PyArrow's `FileSystem.from_uri` would decode them.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from barnabas.spark.delivery.identity import NOTHING_PUBLISHED, BatchConflict, LedgerEntry, entry_of
from barnabas.spark.errors import BatchConflictError
from barnabas.spark.identities import Marks

T = TypeVar("T")
log = logging.getLogger("barnabas.spark")

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/?]*)?([^?]*)(.*)", re.DOTALL)
"""The scheme, the authority and the path of a location, and the parameters that PyArrow reads after a question mark."""
_UNREADABLE: Final = (OSError, ValueError, KeyError, ImportError)  # PyArrow's errors are OSError and ValueError
_OWN: Final = "_barnabas"
_PUBLISHED: Final = f"{_OWN}/published.json"
_PARENTS: Final = f"{_OWN}/parents.json"
_CONFLICTS: Final = f"{_OWN}/conflicts.json"
_AGAIN: Final = f"{_OWN}/apply-again.json"
_REPLACED: Final = f"{_OWN}/replaced"


def query_id_of(checkpoint: str | None) -> str | None:
    """The id of the query with this checkpoint, which may be a local path or the URI of a file system that PyArrow
    opens (hdfs, s3, gs). None if the checkpoint is not given or cannot be read from this process."""
    if checkpoint is None:
        return None
    try:
        return str(json.loads(_read(checkpoint, "metadata"))["id"])
    except _UNREADABLE as error:
        _warn(checkpoint, repr(error))
        return None


def has_committed(checkpoint: str | None) -> bool:
    """Whether the query with this checkpoint has committed a micro-batch; False if that cannot be read."""
    if checkpoint is None:
        return False
    try:
        return bool(_numbers(checkpoint, "commits"))
    except (OSError, ValueError, ImportError):
        return False


def history_of(checkpoint: str | None) -> CheckpointHistory | None:
    """The history of the query with this checkpoint; None if it is not given or cannot be read from this process."""
    query_id = query_id_of(checkpoint)
    return None if query_id is None or checkpoint is None else CheckpointHistory(checkpoint, query_id)


class Published(msgspec.Struct, frozen=True):
    """The newest micro-batch of a query that each target has confirmed. A copy of the checkpoint with another id has
    confirmed nothing."""

    query_id: str = ""
    targets: dict[str, LedgerEntry] = {}


class CheckpointHistory:
    """A `BatchHistory`. What was read is kept, since Spark never changes an entry."""

    def __init__(self, place: str, query_id: str = "") -> None:
        self.place = place
        self._query_id = query_id
        self._offsets: dict[int, str | None] = {}
        self._parents: tuple[str, ...] | None = None
        self._judged: dict[str, int] = {}
        self._chosen: set[str] = set()
        """The targets for which a repair has decided what is done now."""

    @property
    def parents(self) -> tuple[str, ...]:
        if self._parents is None:
            self._parents = tuple(self._stored(_PARENTS, list[str]))
        return self._parents

    def offsets(self, batch_id: int) -> str | None:
        if batch_id not in self._offsets:
            try:
                self._offsets[batch_id] = _read(self.place, f"offsets/{batch_id}").decode()
            except FileNotFoundError:
                self._offsets[batch_id] = None
            except _UNREADABLE as error:
                _warn(self.place, repr(error))
                self._offsets[batch_id] = None
        return self._offsets[batch_id]

    def newest(self) -> int | None:
        """The micro-batch that Spark has planned last: the one that is running, if one is."""
        try:
            return max(_numbers(self.place, "offsets"), default=None)
        except (OSError, ValueError, ImportError):
            return None

    def published(self, target: str) -> LedgerEntry | None:
        return self._published().get(target)

    def _published(self) -> dict[str, LedgerEntry]:
        noted = self._stored(_PUBLISHED, Published)
        return dict(noted.targets) if noted.query_id == self._query_id else {}

    def confirm(self, target: str, marks: Marks) -> None:
        """Note to which table a query writes that has no ledger."""
        noted = self._published()
        if noted.get(target) != LedgerEntry(NOTHING_PUBLISHED, marks=marks):
            noted[target] = LedgerEntry(NOTHING_PUBLISHED, marks=marks)
            _write(self.place, _PUBLISHED, msgspec.json.encode(Published(self._query_id, noted)))

    def judged(self, target: str, batch_id: int) -> None:
        self._judged[target] = batch_id

    def applies_again(self, target: str, stored: LedgerEntry) -> bool:
        found = any(
            each.target == target and (each.stored.batch_id, each.stored.digest) == (stored.batch_id, stored.digest)
            for each in self._stored(_AGAIN, list[BatchConflict])
        )
        if found:
            self._chosen.add(target)
            log.warning(
                "the query with the checkpoint %s goes on in %s, whose ledger has micro-batch %d, as a repair has"
                " chosen",
                self.place,
                target,
                stored.batch_id,
            )
        return found

    def explain(self, action: Callable[[], T]) -> T:
        """Call `action`, which publishes a micro-batch, and note that it did. A BatchConflictError is stored beside the
        checkpoint, where a repair finds it."""
        try:
            result = action()
        except BatchConflictError as error:
            if isinstance(error.conflict, BatchConflict):
                self._note(error.conflict)
            raise
        try:
            self._note_published()
        except (OSError, ValueError, ImportError) as error:  # the note only makes a later loss visible
            log.warning("what was written cannot be noted beside the checkpoint %s: %s", self.place, error)
        return result

    def _note_published(self) -> None:
        noted = self._published()
        for target, batch_id in self._judged.items():
            noted[target] = msgspec.structs.replace(entry_of(batch_id, self), offsets=None)
        if self._judged:
            _write(self.place, _PUBLISHED, msgspec.json.encode(Published(self._query_id, noted)))
        if self._chosen:
            left = [each for each in self._stored(_AGAIN, list[BatchConflict]) if each.target not in self._chosen]
            _write(self.place, _AGAIN, msgspec.json.encode(left))
        self._judged.clear()
        self._chosen.clear()

    def _note(self, conflict: BatchConflict) -> None:
        others = [each for each in self.conflicts() if each.target != conflict.target]
        try:
            _write(self.place, _CONFLICTS, msgspec.json.encode([*others, conflict]))
        except (OSError, ValueError, ImportError) as error:
            log.warning("the conflict cannot be stored beside the checkpoint %s for a repair: %s", self.place, error)

    # -- repair ------------------------------------------------------------------------------------------------------

    def conflicts(self) -> list[BatchConflict]:
        """What ledgers had when they refused a micro-batch, for each target that a repair has not decided."""
        return self._stored(_CONFLICTS, list[BatchConflict])

    def apply_again(self) -> None:
        """Let the checkpoint's micro-batches be written although the ledgers have others. Raises OSError."""
        decided = [*self._stored(_AGAIN, list[BatchConflict]), *self.conflicts()]
        _write(self.place, _AGAIN, msgspec.json.encode(decided))
        self._forget()

    def continue_from(self, batch_id: int, offsets: str) -> None:
        """Let the query go on after the micro-batch that the ledger has, as if the checkpoint were the one that has it.
        The query must not run. Later entries, and the one that is replaced, are kept in `_barnabas/replaced`. Raises
        OSError.

        Spark reads the newest entry and the one before. Until `commits` has the micro-batch, a start would repeat it,
        and the ledger would find it published.
        """
        planned, done = _numbers(self.place, "offsets"), _numbers(self.place, "commits")
        commit = _read(self.place, f"commits/{max(done)}") if done else b'v1\n{"nextBatchWatermarkMs":0}'
        before = max((number for number in planned if number < batch_id), default=None)
        for kind, numbers in (("commits", done), ("offsets", planned)):
            for number in sorted(numbers, reverse=True):
                if number >= batch_id:
                    self._set_aside(kind, number)
        if batch_id and batch_id - 1 != before:
            previous = offsets if before is None else _read(self.place, f"offsets/{before}").decode()
            _write(self.place, f"offsets/{batch_id - 1}", previous.encode())
        _write(self.place, f"offsets/{batch_id}", offsets.encode())
        _write(self.place, f"commits/{batch_id}", commit)
        _remove(self.place, _PUBLISHED)
        self._forget()

    @property
    def has_state(self) -> bool:
        """Whether the query keeps state, which belongs to one micro-batch and cannot be moved to another one."""
        return bool(_names(self.place, "state"))

    def _set_aside(self, kind: str, number: int) -> None:
        _write(self.place, f"{_REPLACED}/{kind}-{number}", _read(self.place, f"{kind}/{number}"))
        _remove(self.place, f"{kind}/{number}")

    def _forget(self) -> None:
        self._offsets.clear()
        _remove(self.place, _CONFLICTS)

    def _stored(self, name: str, kind: type[T]) -> T:
        """A file of this package; an empty value if there is none."""
        try:
            return msgspec.json.decode(_read(self.place, name), type=kind)
        except (OSError, ValueError, ImportError):
            return kind()


@lru_cache(maxsize=64)
def _warn(checkpoint: str, error: str) -> None:
    """Log, once for each checkpoint and error."""
    log.warning(
        "the checkpoint %s cannot be read from Python (%s): the open transactions of a driver or task that was killed"
        " or stopped are not aborted before their time-out, and a ledger that has the number of a micro-batch takes it"
        " as written, also if the checkpoint was restored or copied",
        checkpoint,
        error,
    )


# -- files -------------------------------------------------------------------------------------------------------------


def local_path(location: str) -> str | None:
    """The path of a location on this machine: `/data/x` or `file:///data/x`. None for other file systems."""
    found = _URI.fullmatch(location)
    if found is None:
        return location
    return f"{found[3]}{found[4]}" if found[1].lower() == "file" else None


def open_location(location: str) -> tuple[Any, str]:
    """PyArrow's file system of a location, and the path there that Hadoop's `Path` has for this location. Raises
    OSError and ValueError.
    """
    from pyarrow.fs import FileSystem, LocalFileSystem

    path = local_path(location)
    if path is not None:
        return LocalFileSystem(), path
    found = _URI.fullmatch(location)
    assert found is not None, "a location without a scheme is local"
    scheme, authority, path, parameters = found.groups(default="")
    system, opened = FileSystem.from_uri(f"{scheme}:{authority}{quote(path, safe='/')}{parameters}")
    return system, opened


def _read(checkpoint: str, name: str) -> bytes:
    path = local_path(checkpoint)
    if path is not None:
        return (Path(path) / name).read_bytes()
    system, path = open_location(checkpoint)
    with system.open_input_file(f"{path}/{name}") as file:
        return bytes(file.read())


def _write(checkpoint: str, name: str, content: bytes) -> None:
    """Write a file. Hadoop's checksum of a local file that is replaced is removed, since it would no longer fit."""
    path = local_path(checkpoint)
    if path is not None:
        file = Path(path) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.part")
        part.write_bytes(content)
        _checksum(file).unlink(missing_ok=True)
        part.replace(file)
        return
    system, path = open_location(checkpoint)
    system.create_dir(f"{path}/{name}".rpartition("/")[0], recursive=True)
    with system.open_output_stream(f"{path}/{name}") as stream:
        stream.write(content)


def _remove(checkpoint: str, name: str) -> None:
    """Remove a file if it exists."""
    path = local_path(checkpoint)
    if path is not None:
        file = Path(path) / name
        file.unlink(missing_ok=True)
        _checksum(file).unlink(missing_ok=True)
        return
    from pyarrow.fs import FileType

    system, path = open_location(checkpoint)
    if system.get_file_info(f"{path}/{name}").type is not FileType.NotFound:
        system.delete_file(f"{path}/{name}")


def _checksum(file: Path) -> Path:
    """The file in which Hadoop keeps the checksums of a local file."""
    return file.with_name(f".{file.name}.crc")


def _names(checkpoint: str, directory: str) -> Sequence[str]:
    """The names of the files and directories in a directory; none if it does not exist."""
    from pyarrow.fs import FileSelector

    system, path = open_location(checkpoint)
    found = system.get_file_info(FileSelector(f"{path}/{directory}", allow_not_found=True))
    return [each.base_name for each in found if not each.base_name.startswith(".")]


def _numbers(checkpoint: str, directory: str) -> list[int]:
    """The micro-batches that have a file in `offsets` or `commits`."""
    return [int(name) for name in _names(checkpoint, directory) if name.isdecimal()]
