"""Value: what a file sink keeps in a directory besides the files.

    <path>/_barnabas/<query id>/<batch id>/<attempt>-<n>.avro    a staged file
    <path>/_barnabas/<query id>/<batch id>.json                  the decision: which staged files get which names

A decision is written once, and never changed. From then on its files belong to the directory, and a driver that finds
the decision gives the files their names, if its predecessor died before it did.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from barnabas.spark.connectors.sinking.ports import BatchId

DIRECTORY: Final = "_barnabas"
"""Spark and most other readers leave out directories that begin with an underscore."""
_DECISION: Final = re.compile(r"(\d+)\.json")


class Decision(msgspec.Struct, frozen=True):
    """The files of one micro-batch: the staged file and its final name, for each, relative to the directory. `identity`
    is what identifies the micro-batch (`LedgerEntry`); decisions of earlier releases have none.
    """

    moves: tuple[tuple[str, str], ...]
    identity: str | None = None


def decision_path(batch: BatchId) -> str:
    return f"{DIRECTORY}/{batch.query_id}/{batch.batch_id}.json"


def query_directory(query_id: str) -> str:
    return f"{DIRECTORY}/{query_id}"


def decided_batches(paths: Sequence[str], query_id: str) -> list[int]:
    """The numbers of the micro-batches that are decided, ascending, from the files of the query's directory."""
    prefix = query_directory(query_id) + "/"
    found = []
    for path in paths:
        match = _DECISION.fullmatch(path.removeprefix(prefix))
        if match is not None:
            found.append(int(match[1]))
    return sorted(found)


def final_name(batch: BatchId, partition: int, number: int, suffix: str) -> str:
    """The name of a file. Micro-batches with the same number never give files the same name, so that one which a repair
    writes again replaces no file."""
    query = batch.query_id[-12:]
    digest = batch.entry().digest
    identity = "" if digest is None else f"-{digest[:8]}"
    return f"part-{batch.batch_id:08d}-{partition:05d}-{number:03d}-{query}{identity}{suffix}"
