"""Shell: removes the files of attempts that were not committed: of failed tasks, and of drivers that died.

Files of a micro-batch are removed only after the micro-batch is committed: until then, another driver of the query
that is still alive could commit the files. The commits of a micro-batch name their attempts (there are several if a
repair has written a number again). All other marker files of that micro-batch belong to attempts whose files are not in
the table, and never will be.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from typing import Final

from barnabas.spark.connectors.lake.ports import LakeTable
from barnabas.spark.connectors.sinking.ports import BatchId

log = logging.getLogger("barnabas.spark")

DIRECTORY: Final = "_barnabas"
"""Readers and cleaners of Delta leave out directories that begin with an underscore."""
_NOTE: Final = re.compile(rf"{DIRECTORY}/[^/]+/(\d+)/([0-9a-f-]{{36}})(-\d+\.parquet)?")


def attempt_note(batch: BatchId, attempt: str) -> str:
    return f"{_directory(batch.query_id)}/{batch.batch_id}/{attempt}"


def staged_path(batch: BatchId, attempt: str, number: int) -> str:
    return f"{attempt_note(batch, attempt)}-{number}.parquet"


def sweep(table: LakeTable, batch: BatchId, committed: Collection[str]) -> None:
    """Remove what attempts left for this micro-batch and earlier ones of the query, which are in the table. `committed`
    are the attempts that were committed just now. If it is not known which attempts count, their files stay.
    """
    orphans: set[str] = set()
    done: set[int] = set()
    known: dict[int, frozenset[str] | None] = {}
    for path in table.storage.list(_directory(batch.query_id)):
        match = _NOTE.fullmatch(path)
        if match is None or int(match[1]) > batch.batch_id:
            continue
        number = int(match[1])
        done.add(number)
        if match[3] or match[2] in committed:
            continue  # staged rows are never part of the table
        if number not in known:
            found = table.committed_attempts(BatchId(batch.query_id, number))
            known[number] = frozenset() if found is None and committed and number == batch.batch_id else found
        counted = known[number]
        if counted is not None and match[2] not in counted:
            orphans.add(match[2])
    if orphans:
        files = [path for path in table.storage.list("") if path.rpartition("/")[2] and _attempt_of(path) in orphans]
        table.storage.delete(files)
        log.info("%d files of %d attempts that do not count are removed", len(files), len(orphans))
    for number in sorted(done):
        table.storage.delete_directory(f"{_directory(batch.query_id)}/{number}")


_ATTEMPT: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _attempt_of(path: str) -> str | None:
    """The attempt in the name of a data file."""
    if path.startswith(DIRECTORY + "/") or not path.endswith(".parquet"):
        return None
    found = _ATTEMPT.search(path.rpartition("/")[2])
    return None if found is None else found[0]


def _directory(query_id: str) -> str:
    return f"{DIRECTORY}/{query_id}"
