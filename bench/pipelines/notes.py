"""Value: when a call began and ended, as the processes of a query note it.

Each process appends its notes to a file of its own in the directory that the environment variable BENCH_TIMES names:
{"part": "source: latestOffset", "began": ns, "ended": ns}.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DIRECTORY: Final = "BENCH_TIMES"


@dataclass(frozen=True)
class Note:
    """One call: its name, and when it began and ended, in ns of the machine's clock."""

    part: str
    began: int
    ended: int

    @property
    def ms(self) -> float:
        return (self.ended - self.began) / 1e6


def note(part: str, began: int, ended: int) -> None:
    """Append a note, if there is a directory for notes."""
    folder = os.environ.get(DIRECTORY)
    if folder:
        with (Path(folder) / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"part": part, "began": began, "ended": ended}) + "\n")


def read_notes(folder: Path) -> list[Note]:
    """The notes of all processes, in the order in which the calls began."""
    lines = (line for path in folder.glob("*.jsonl") for line in path.read_text(encoding="utf-8").splitlines())
    return sorted((Note(**json.loads(line)) for line in lines), key=lambda found: found.began)
