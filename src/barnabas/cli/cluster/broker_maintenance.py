"""Shell: `barnabas logs compact` and `enforce-retention` on a running broker.

Each command asks brokers to compact logs, or to delete old segments, once and now, and prints the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.cli.output import EXIT_FAILED, EXIT_USAGE, fail, print_json, print_table, size_text
from barnabas.cli.session import read_properties, run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.maintenance import MaintenanceReport
    from barnabas.core.errors import KafkaError
    from barnabas.core.ids import TopicPartition

PASS_TIMEOUT_MS = 3_600_000
"""The timeout of a request. Compaction reads a log once or twice; an hour is enough for a hundred gigabytes."""


def compact_running(
    topics: list[str] | None,
    bootstrap_server: str,
    command_config: str | None,
    *,
    roll: bool,
    force: bool,
    dry_run: bool,
    json: bool,
) -> None:
    from barnabas.client.explanations.partition import compact_outcome

    async def command(admin: AsyncAdmin) -> dict[TopicPartition, MaintenanceReport | KafkaError]:
        wanted = await _partitions(admin, topics)
        return await admin.compact(wanted, roll=roll, force=force, dry_run=dry_run)

    found = _run(bootstrap_server, command, command_config)
    rows = [_row(name, report, compact_outcome) for name, report in found]
    if json:
        print_json(rows)
    else:
        print_table(
            ["PARTITION", "WHAT", "DIRTY>", "BEFORE>", "AFTER>", "RECORDS KEPT>", "OF>", "CLEAN UP TO>"],
            [
                (r["partition"], r["outcome"])
                if r["failed"]
                else (
                    r["partition"],
                    r["outcome"],
                    f"{r['dirty_ratio']:.0%}",
                    size_text(r["bytes_before"]),
                    size_text(r["bytes_after"]),
                    r["records_kept"],
                    r["records_read"],
                    r["cleaned_offset"],
                )
                for r in rows
            ],
        )
    _exit_if_failed(rows)


def enforce_retention_running(
    topics: list[str] | None, bootstrap_server: str, command_config: str | None, *, dry_run: bool, json: bool
) -> None:
    from barnabas.client.explanations.partition import retention_outcome

    async def command(admin: AsyncAdmin) -> dict[TopicPartition, MaintenanceReport | KafkaError]:
        return await admin.enforce_retention(await _partitions(admin, topics), dry_run=dry_run)

    found = _run(bootstrap_server, command, command_config)
    rows = [_row(name, report, retention_outcome) for name, report in found]
    if json:
        print_json(rows)
    else:
        print_table(
            ["PARTITION", "WHAT", "SEGMENTS DELETED>", "BEFORE>", "AFTER>", "STARTS AT>"],
            [
                (r["partition"], r["outcome"])
                if r["failed"]
                else (
                    r["partition"],
                    r["outcome"],
                    r["segments_deleted"],
                    size_text(r["bytes_before"]),
                    size_text(r["bytes_after"]),
                    r["log_start_offset"],
                )
                for r in rows
            ],
        )
    _exit_if_failed(rows)


async def _partitions(admin: AsyncAdmin, topics: list[str] | None) -> list[TopicPartition]:
    from barnabas.client.admin.offset_resets import select_partitions

    if not topics:
        fail("name the partitions: --topic TOPIC[:P] on a running broker, or the DATA_DIR of a stopped one", EXIT_USAGE)
    return await select_partitions(admin, "", topics)


def _run(bootstrap_server: str, command: Any, command_config: str | None) -> list[tuple[TopicPartition, Any]]:
    timeouts = {"request.timeout.ms": PASS_TIMEOUT_MS, "default.api.timeout.ms": PASS_TIMEOUT_MS}
    return sorted(run_admin(bootstrap_server, command, {**timeouts, **read_properties(command_config)}).items())


def _row(name: TopicPartition, report: MaintenanceReport | KafkaError, outcome: Any) -> dict[str, Any]:
    from dataclasses import asdict

    from barnabas.core.errors import KafkaError

    if isinstance(report, KafkaError):
        return {"partition": str(name), "outcome": f"failed: {report}", "failed": True}
    return {"partition": str(name), "outcome": outcome(report), "failed": False, **asdict(report)}


def _exit_if_failed(rows: list[dict[str, Any]]) -> None:
    if any(row["failed"] for row in rows):
        raise SystemExit(EXIT_FAILED)
