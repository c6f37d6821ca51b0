"""Shell: tables and progress bars of `barnabas backup`, `restore` and `verify`, and their JSON documents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from barnabas.cli.output import emit, note, print_table, size_text

if TYPE_CHECKING:
    from barnabas.backup.errors import BackupError
    from barnabas.backup.restoring.restore import RestoreReport
    from barnabas.backup.values import RunManifest
    from barnabas.backup.verifying import BackupCheck

Advance = Callable[[float, float], None]
"""Shows how much is done, and of how much."""


@contextmanager
def progress_bar(text: str, *, hidden: bool, of_bytes: bool = True) -> Iterator[Advance]:
    """A progress bar on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TransferSpeedColumn

    numbers = (DownloadColumn(binary_units=True), TransferSpeedColumn()) if of_bytes else (MofNCompleteColumn(),)
    columns = (TextColumn("{task.description}"), BarColumn(), *numbers)
    disabled = hidden or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=disabled) as progress:
        task = progress.add_task(text, total=None)

        def advance(done: float, total: float) -> None:
            progress.update(task, completed=done, total=total or None)

        yield advance


def run_document(run: RunManifest) -> dict[str, Any]:
    """A run in a list."""
    return {
        "run": run.id,
        "complete": run.complete,
        "cluster_id": run.cluster_id,
        "started_ms": run.started_ms,
        "finished_ms": run.finished_ms,
        "base": run.base,
        "topics": len(run.topics),
        "partitions": sum(len(topic.partitions) for topic in run.topics),
        "groups": len(run.groups),
        "size": run.size,
        "added": run.added_bytes,
        "notes": list(run.notes),
    }


def described_document(run: RunManifest) -> dict[str, Any]:
    """A run with its topics and groups."""
    topics = [
        {
            "topic": topic.name,
            "id": topic.topic_id,
            "replication_factor": topic.replication_factor,
            "configs": topic.configs,
            "partitions": [
                {
                    "partition": partition.partition,
                    "start": partition.log_start,
                    "end": partition.end,
                    "size": partition.size,
                    "objects": len(partition.objects),
                }
                for partition in topic.partitions
            ],
        }
        for topic in run.topics
    ]
    groups = [{"group": group.group_id, "type": group.type, "offsets": len(group.offsets)} for group in run.groups]
    counts = {
        name: None if found is None else len(found)
        for name, found in (("acls", run.acls), ("users", run.users), ("quotas", run.quotas))
    }
    return {**run_document(run), "topics": topics, "groups": groups, **counts}


def print_runs(runs: Sequence[RunManifest | BackupError]) -> None:
    rows: list[Sequence[object]] = []
    for run in runs:
        if isinstance(run, Exception):
            rows.append((str(run),))
            continue
        state = "complete" if run.complete else "interrupted"
        time = _time(run.finished_ms)
        rows.append((run.id, time, state, len(run.topics), size_text(run.size), size_text(run.added_bytes)))
    print_table(["RUN", "ENDED", "STATE", "TOPICS>", "SIZE>", "ADDED>"], rows, empty="no runs")


def print_run(run: RunManifest) -> None:
    emit(f"run {run.id} of cluster {run.cluster_id}, ended {_time(run.finished_ms)}")
    emit("")
    rows = [
        (topic.name, partition.partition, partition.log_start, partition.end, size_text(partition.size))
        for topic in run.topics
        for partition in topic.partitions
    ]
    print_table(["TOPIC", "PARTITION", "START>", "END>", "SIZE>"], rows, empty="no topics")
    emit("")
    print_table(
        ["GROUP", "TYPE", "OFFSETS>"], [(g.group_id, g.type, len(g.offsets)) for g in run.groups], title="groups"
    )
    for what, found in (("ACLs", run.acls), ("SCRAM users", run.users), ("quotas", run.quotas)):
        emit(f"{what}: {'not readable' if found is None else len(found)}")
    print_notes(run.notes)


def print_notes(notes: Sequence[str]) -> None:
    for text in notes:
        note(f"note: {text}")


def print_report(report: RestoreReport, *, dry_run: bool) -> None:
    verb = "can be restored" if dry_run else "is restored"
    how = (
        "by a cluster link, with the same offsets" if report.method.value == "link" else "by Produce, with new offsets"
    )
    emit(
        f"run {report.run} {verb} {how}: {report.topics} topics, {report.partitions} partitions, "
        f"{report.groups} groups, {report.acls} ACLs, {report.quotas} quotas, {size_text(report.bytes_sent)} sent"
    )
    print_notes(report.notes)


def print_check(check: BackupCheck) -> None:
    rows = [(damage.name, damage.problem, len(damage.runs)) for damage in check.damage]
    if rows:
        print_table(["OBJECT", "PROBLEM", "RUNS>"], rows)
        emit("")
    emit(f"{check.runs} runs, {check.objects} objects, {size_text(check.size)}: {len(rows) or 'no'} damaged")
    if check.interrupted:
        note(f"note: interrupted, or under way: {', '.join(check.interrupted)}. The next run continues the newest.")
    if check.leftovers:
        note(
            f"note: {check.leftovers} objects ({size_text(check.leftover_bytes)}) belong to no complete run; "
            "`barnabas backup prune` deletes them after a day."
        )


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
