"""Shell: where the time of a micro-batch goes: `python -m bench.pipelines --only parts`.

Spark's progress reports have the durations of its own steps. `timed.py` notes the calls of our source and sink in their
processes; a note belongs to the micro-batch in whose time it began. Calls of tasks run beside each other, so that their
sums exceed the time of the step.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.pipelines.batch import AT_LEAST_ONCE, EXACTLY_ONCE, PEER, Bench
from bench.pipelines.notes import DIRECTORY, Note, read_notes
from bench.report import Sheet
from bench.servers import cpu_seconds, descendants

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter

TOTAL = "triggerExecution"
_WORK = {
    "worker": "tasks",
    "write_into_data_source": "planning of the sink",
    "python_streaming_sink_runner": "commit of the sink",
}


@dataclass(frozen=True)
class MicroBatch:
    """When a micro-batch began, in ns, and the ms of Spark's steps."""

    began: int
    steps: Mapping[str, float]

    @property
    def ended(self) -> int:
        return self.began + int(self.steps[TOTAL] * 1e6)


def micro_batch(report: Mapping[str, Any]) -> MicroBatch:
    began = datetime.fromisoformat(report["timestamp"]).timestamp()
    return MicroBatch(int(began * 1e9), {name: float(ms) for name, ms in report["durationMs"].items()})


def parts_of(batches: Sequence[MicroBatch], notes: Sequence[Note]) -> dict[str, float]:
    """The median over the micro-batches of the ms of each part: Spark's steps, then the sums of the noted calls."""
    found: dict[str, list[float]] = defaultdict(list)
    for batch in batches:
        for step, ms in batch.steps.items():
            found[f"Spark: {step}"].append(ms)
        sums: dict[str, float] = defaultdict(float)
        for note in notes:
            if batch.began <= note.began < batch.ended:
                sums[note.part] += note.ms
        for part, ms in sums.items():
            found[part].append(ms)
    return {part: statistics.median(values) for part, values in found.items()}


def cpu_by_process(jvm: int) -> dict[int, tuple[str, float]]:
    """The processor seconds of the JVM and of Spark's Python processes, with the name of their work.

    The process of the source has no name: there is one for each query, and most of its time is its start.
    """
    found = {jvm: ("JVM", cpu_seconds(jvm))}
    for pid in descendants(jvm):
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            module = command[-2].decode().rpartition(".")[2] if command[1:] else ""
            found[pid] = (_WORK.get(module, ""), cpu_seconds(pid))
    return found


def run_noted(bench: Bench, writer: DataStreamWriter, folder: Path) -> dict[str, float]:
    """Run a query until it has read everything. Returns the parts of its micro-batches, without the first third."""
    for file in folder.glob("*.jsonl"):
        file.write_text("")
    jvm = bench.spark.sparkContext._gateway.proc.pid
    before = cpu_by_process(jvm)
    with tempfile.TemporaryDirectory(prefix="bench-checkpoint-") as checkpoint:
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        cpu = cpu_by_process(jvm)
        reports = [json.loads(report.json) for report in query.recentProgress]
    batches = [micro_batch(report) for report in reports if report["numInputRows"]]
    used: dict[str, float] = defaultdict(float)
    for pid, (work, seconds) in cpu.items():
        if work:
            used[f"CPU: {work}"] += 1000 * (seconds - before.get(pid, ("", 0.0))[1]) / max(len(batches), 1)
    return parts_of(batches[len(batches) // 3 :], read_notes(folder)) | used


def parts_sheet(bench: Bench, topic: str, per_batch: int, rounds: int, folder: Path) -> Sheet:
    """The parts of a micro-batch of so many records, topic to topic, for each sink."""
    from bench.pipelines.timed import TimedSource  # the import replaces calls in this process

    bench.spark.dataSource.register(TimedSource)
    ours = TimedSource.name()
    sinks = {
        EXACTLY_ONCE: (ours, {"delivery": "exactly-once"}),
        AT_LEAST_ONCE: (ours, {"delivery": "at-least-once"}),
    } | ({PEER: ("kafka", {})} if bench.has_jvm_connector else {})
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sinks}
    for number in range(rounds + 1):
        for name, (source, options) in sinks.items():
            reader = bench.spark.readStream.format(source).option("kafka.bootstrap.servers", bench.servers)
            rows = reader.options(
                subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(per_batch)
            ).load()
            writer = rows.select("key", "value").writeStream.format(source)
            writer.option("kafka.bootstrap.servers", bench.servers).option("topic", bench.topic("parts"))
            parts = run_noted(bench, writer.options(**options), folder)
            if number:  # the first round starts processes and warms up the JVM
                found[name].append(parts)
    names = dict.fromkeys(part for runs in found.values() for run in runs for part in run)
    rows_ = []
    for part in sorted(names, key=lambda part: (not part.startswith("Spark: "), part)):
        values = [[run[part] for run in runs if part in run] for runs in found.values()]
        rows_.append((part, *(f"{statistics.median(v):.1f}" if v else "" for v in values)))
    title = f"ms of a micro-batch of {per_batch:,} records, topic to topic, median of {rounds} rounds"
    return Sheet(title, ("", *found), rows_)


def notes_folder(parent: Path) -> Path:
    """A directory for notes. Call this before the first Spark session, whose processes inherit the variable."""
    folder = parent / "notes"
    folder.mkdir()
    os.environ[DIRECTORY] = str(folder)
    return folder
