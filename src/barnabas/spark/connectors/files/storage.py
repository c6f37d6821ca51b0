"""Shell: a directory of files: local, or of an object store through PyArrow."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from barnabas.spark.connectors.lake.storage import ArrowStorage
from barnabas.spark.errors import OptionError


class FileDirectory(ArrowStorage):
    """The files below `place`."""

    @classmethod
    def open(cls, place: str, options: Mapping[str, str]) -> FileDirectory:
        """A local path, or a URI such as s3://bucket/folder with the options of the store. Raises OptionError."""
        from pyarrow.fs import FileSystem, LocalFileSystem

        if "://" not in place:
            return cls(LocalFileSystem(), str(Path(place).absolute()))
        parts = urlsplit(place)
        if parts.scheme in ("s3", "s3a"):
            return cls(s3_file_system(options), (parts.netloc + parts.path).rstrip("/"))
        try:
            filesystem, path = FileSystem.from_uri(place)
        except (ValueError, OSError) as error:
            raise OptionError(f"path={place} cannot be opened: {error}") from error
        return cls(filesystem, path)

    def create_once(self, path: str, content: bytes) -> bool:
        """Write a file that must not exist; False if it does. Local files appear as a whole, and only one of several
        processes creates them. An object store's file also appears as a whole.
        """
        if self.filesystem.type_name != "local":
            from pyarrow.fs import FileType

            if self.filesystem.get_file_info(self.path(path)).type is not FileType.NotFound:
                return False
            self.write(path, content)
            return True
        whole = Path(self.path(path))
        whole.parent.mkdir(parents=True, exist_ok=True)
        part = whole.with_name(f".{whole.name}.{uuid.uuid4().hex}")
        try:
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(part, whole)
            _sync_directory(whole.parent)
            return True
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()

    def read(self, path: str) -> bytes:
        with self.filesystem.open_input_stream(self.path(path)) as file:
            return bytes(file.read())

    def move(self, source: str, target: str) -> None:
        """Give a file its final name; nothing happens if that was done before. An object store copies the file."""
        from pyarrow.fs import FileType

        source, target = self.path(source), self.path(target)
        if self.filesystem.get_file_info(source).type is FileType.NotFound:
            return
        if self._has_directories:
            self.filesystem.create_dir(target.rpartition("/")[0], recursive=True)
        self.filesystem.move(source, target)
        if self.filesystem.type_name == "local":
            os.utime(target)  # so that files become visible in the order of their times


def s3_file_system(options: Mapping[str, str]) -> Any:
    """The file system of an S3-compatible store. The options are those of deltalake (`aws_endpoint_url`,
    `aws_access_key_id`, ...) or of pyiceberg (`s3.endpoint`, `s3.access-key-id`, ...), without regard to case.
    """
    from pyarrow.fs import S3FileSystem

    given = {name.lower(): text for name, text in options.items()}

    def first(*names: str) -> str | None:
        return next((given[name] for name in names if name in given), None)

    endpoint = first("aws_endpoint_url", "aws_endpoint", "endpoint", "s3.endpoint")
    more: dict[str, Any] = {}
    if endpoint is not None:
        parts = urlsplit(endpoint)
        more = {"endpoint_override": parts.netloc or endpoint, "scheme": parts.scheme or "https"}
    return S3FileSystem(
        access_key=first("aws_access_key_id", "access_key_id", "s3.access-key-id"),
        secret_key=first("aws_secret_access_key", "secret_access_key", "s3.secret-access-key"),
        session_token=first("aws_session_token", "session_token", "s3.session-token"),
        region=first("aws_region", "region", "s3.region") or ("us-east-1" if endpoint else None),
        **more,
    )


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
