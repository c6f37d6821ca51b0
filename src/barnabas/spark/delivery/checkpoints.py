"""Shell: reads a query's id from its checkpoint.

Spark writes `<checkpoint>/metadata`, {"id":"6f1e…"}, before the first micro-batch. Planning on the driver knows the
checkpoint's place, but not the id.
"""

from __future__ import annotations

import json
import logging
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

log = logging.getLogger("barnabas.spark")


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


@lru_cache(maxsize=64)
def _warn(checkpoint: str, error: str) -> None:
    """Log, once for each checkpoint and error."""
    log.warning(
        "the checkpoint %s cannot be read from Python (%s): the open transactions of a killed driver or task are"
        " not aborted before their time-out",
        checkpoint,
        error,
    )


def _read(checkpoint: str) -> bytes:
    parts = urlsplit(checkpoint)
    if parts.scheme in ("", "file"):
        return (Path(unquote(parts.path) if parts.scheme else checkpoint) / "metadata").read_bytes()
    from pyarrow.fs import FileSystem

    system, path = FileSystem.from_uri(checkpoint)
    with system.open_input_file(f"{path}/metadata") as file:
        return bytes(file.read())
