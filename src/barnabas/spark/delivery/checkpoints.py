"""Shell: reads a query's id from its checkpoint, and whether the query has committed a micro-batch.

Spark writes `<checkpoint>/metadata`, {"id":"6f1e…"}, before the first micro-batch. Planning on the driver knows the
checkpoint's place, but not the id.

Spark reads the place as a `org.apache.hadoop.fs.Path`, which decodes no percent signs: the checkpoint
`file:///data/my%20lines` is the directory `/data/my%20lines`. PyArrow's `FileSystem.from_uri` would decode them.
"""

from __future__ import annotations

import json
import logging
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

log = logging.getLogger("barnabas.spark")


_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/?]*)?([^?]*)(.*)", re.DOTALL)
"""The scheme, the authority and the path of a location, and the parameters that PyArrow reads after a question mark."""


def query_id_of(checkpoint: str | None) -> str | None:
    """The id of the query with this checkpoint, which may be a local path or the URI of a file system that PyArrow
    opens (hdfs, s3, gs). None if the checkpoint is not given or cannot be read from this process."""
    if checkpoint is None:
        return None
    try:
        return str(json.loads(_read(checkpoint))["id"])
    except (OSError, ValueError, KeyError, ImportError) as error:  # PyArrow's errors are OSError and ValueError
        _warn(checkpoint, repr(error))
        return None


def has_committed(checkpoint: str | None) -> bool:
    """Whether the query with this checkpoint has committed a micro-batch; False if that cannot be read."""
    if checkpoint is None:
        return False
    try:
        from pyarrow.fs import FileSelector

        system, path = open_location(checkpoint)
        return any(each.base_name.isdecimal() for each in system.get_file_info(FileSelector(f"{path}/commits")))
    except (OSError, ValueError, ImportError):  # PyArrow's errors are OSError and ValueError
        return False


@lru_cache(maxsize=64)
def _warn(checkpoint: str, error: str) -> None:
    """Log, once for each checkpoint and error."""
    log.warning(
        "the checkpoint %s cannot be read from Python (%s): the open transactions of a driver or task that was killed"
        " or stopped are not aborted before their time-out",
        checkpoint,
        error,
    )


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


def _read(checkpoint: str) -> bytes:
    path = local_path(checkpoint)
    if path is not None:
        return (Path(path) / "metadata").read_bytes()
    system, path = open_location(checkpoint)
    with system.open_input_file(f"{path}/metadata") as file:
        return bytes(file.read())
