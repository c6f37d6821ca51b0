"""Machine: which files of its host a connector that came over the REST API may read and write.

The files of FileStreamSource, FileStreamSink, SparkSource and SparkSink must be below the worker's `file.directories`.
Symbolic links are followed first. Locations in object stores are not files of the host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

SETTING: Final = "file.directories"
FILE_FORMATS: Final = ("barnabas.files", None)
"""The formats of the connectors that read and write files: FileStream's, and whatever spark.format names."""
_KEYS: Final = ("file", "path")


def refused_file(texts: Mapping[str, str], directories: Sequence[str]) -> tuple[str, str] | None:
    """The key with a file that is not below one of the directories, and why; None if there is none."""
    for name, text in texts.items():
        if name.lower().rpartition(".")[2] not in _KEYS:
            continue
        scheme, separator, rest = text.partition(":")
        if separator and scheme.isalnum() and scheme.lower() != "file":
            continue
        place = os.path.realpath("/" + unquote(rest).lstrip("/") if separator else text)
        if not any(os.path.commonpath([place, root]) == root for root in map(os.path.realpath, directories)):
            allowed = f"they are {', '.join(directories)}" if directories else "there are none"
            return name, (
                f"{name}={text} is not below the directories in which connectors may use files: {allowed}; the worker's"
                f" setting {SETTING} has them"
            )
    return None
