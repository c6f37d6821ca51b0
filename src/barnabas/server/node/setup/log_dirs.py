"""Shell: opens and locks all data directories of a node at the start, and closes them at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from barnabas.core.rng import Rng, random_uuid
from barnabas.core.telemetry import get_logger
from barnabas.server.node.config import NodeConfig
from barnabas.server.node.setup.identity import Identity
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.errors import LogDirError, StorageError
from barnabas.server.storage.fs import DiskUsage, FileSystem
from barnabas.server.storage.segments.open_segments import OpenSegments

log = get_logger("barnabas.server.node")

_DISK_FULL_BYTES: Final = 64 * 1024
"""A disk with less free space counts as full: many file systems cannot use their last blocks."""

OnFailure = Callable[[LogDir, BaseException], None]


def open_log_dirs(
    fs: FileSystem,
    config: NodeConfig,
    identity: Identity,
    rng: Rng,
    on_failure: OnFailure,
    open_segments: OpenSegments,
) -> tuple[list[LogDir], list[str]]:
    """Open every directory. `open_segments` bounds their open files.

    Returns the open directories, and the paths of directories whose disk failed.

    Raises StorageError if no directory can be opened, and LogDirError for a directory that is in use or belongs to
    another node.
    """
    opened: list[LogDir] = []
    failures: dict[str, StorageError] = {}
    try:
        for path in config.log_dirs:
            try:
                fs.mkdir(path)
                opened.append(
                    LogDir.open(
                        fs, path, cluster_id=identity.cluster_id, node_id=identity.node_id,
                        new_directory_id=random_uuid(rng), on_failure=on_failure,
                        producer_id_expiration_ms=config["producer.id.expiration.ms"], open_segments=open_segments,
                    )
                )  # fmt: skip
            except LogDirError:
                raise
            except StorageError as error:
                log.error("log directory cannot be opened; it is offline", path=path, reason=str(error))
                failures[path] = error
        if not opened:
            reasons = "; ".join(f"{path}: {error}" for path, error in failures.items())
            raise StorageError(f"No data directory can be opened: {reasons}")
    except BaseException:  # any error: the directories that are open must not stay locked
        close_log_dirs(opened, clean=True, broker_epoch=-1)
        raise
    return opened, list(failures)


def metadata_dir(config: NodeConfig, dirs: list[LogDir]) -> LogDir:
    """The directory of the metadata log. Raises StorageError if this directory is offline."""
    wanted = str(config["metadata.log.dir"] or config.log_dirs[0])
    for directory in dirs:
        if directory.path == wanted:
            return directory
    raise StorageError(f"The directory of the metadata log, {wanted}, must be in log.dirs and be online.")


def close_log_dirs(dirs: list[LogDir], *, clean: bool, broker_epoch: int) -> None:
    """Close `dirs`. After a clean close, the next start does not recover every log."""
    for directory in dirs:
        try:
            directory.close(clean=clean, broker_epoch=broker_epoch)
        except StorageError as error:
            log.error("log directory could not be closed cleanly", path=directory.path, reason=str(error))


class Volume(Protocol):
    """What `full_directories` needs of a log directory."""

    @property
    def path(self) -> str: ...

    @property
    def failure(self) -> object | None: ...

    def disk_usage(self) -> DiskUsage: ...


def full_directories(dirs: Iterable[Volume]) -> list[str]:
    """The log directories that work, and whose disk has no space left."""
    full = []
    for home in dirs:
        if home.failure is None:
            with contextlib.suppress(StorageError):  # a disk that cannot be measured fails when it is used
                if home.disk_usage().free < _DISK_FULL_BYTES:
                    full.append(home.path)
    return full
