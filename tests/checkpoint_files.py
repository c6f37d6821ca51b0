"""A checkpoint as Spark writes it, for tests of what reads it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barnabas.spark.delivery.checkpoints import CheckpointHistory, history_of

QUERY = "6f1e3c8a-0000-4000-8000-000000000001"


class QueryCheckpoint:
    """The checkpoint of a query in a local directory. An entry's text differs if its `run` does, as Spark's timestamp
    in it would."""

    def __init__(self, folder: Path, query: str = QUERY) -> None:
        self.folder = folder
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": query}))

    def plan(self, batch: int, end: int, run: int = 0) -> None:
        """What Spark writes before a micro-batch."""
        lines = ["v1", json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": run, "conf": {}})]
        lines.append(json.dumps({"orders": {"0": end}}))
        (self.folder / "offsets" / str(batch)).write_text("\n".join(lines))

    def commit(self, batch: int) -> None:
        """What Spark writes after a micro-batch."""
        (self.folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def history(self) -> CheckpointHistory:
        """As a process of the driver reads it."""
        found = history_of(str(self.folder))
        assert found is not None
        return found

    def copy(self, folder: Path) -> QueryCheckpoint:
        """A backup, or a copy that another query uses."""
        shutil.copytree(self.folder, folder)
        copied = QueryCheckpoint.__new__(QueryCheckpoint)
        copied.folder = folder
        return copied

    def fork(self, folder: Path, query: str) -> QueryCheckpoint:
        """A copy that is another query and knows its parent."""
        parents = [json.loads((self.folder / "metadata").read_text())["id"], *self.history().parents]
        forked = self.copy(folder)
        (folder / "metadata").write_text(json.dumps({"id": query}))
        (folder / "_barnabas").mkdir(exist_ok=True)
        (folder / "_barnabas" / "parents.json").write_text(json.dumps(parents))
        return forked

    def end(self) -> tuple[int, int]:
        """The newest micro-batch that is planned, and where it ends in the topic."""
        batch = max(int(path.name) for path in (self.folder / "offsets").iterdir() if path.name.isdecimal())
        document = json.loads((self.folder / "offsets" / str(batch)).read_text().splitlines()[2])
        return batch, document["orders"]["0"]


Write = Callable[[str, int, Any, list[int]], None]
"""Writes rows as a micro-batch of a query with this history (None: the checkpoint cannot be read)."""
