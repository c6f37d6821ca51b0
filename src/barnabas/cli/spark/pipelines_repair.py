"""Shell: `barnabas pipelines repair`: decides between a checkpoint and a ledger that do not belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.options import Json, Yes
from barnabas.cli.output import EXIT_USAGE, confirm, fail, note, print_json, print_table
from barnabas.core.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.spark.delivery.checkpoints import CheckpointHistory
    from barnabas.spark.delivery.identity import BatchConflict


def pipelines_repair(
    pipeline: Annotated[
        str | None,
        typer.Argument(
            help="The directory or the spec file of a pipeline, or the name of one that ran on this machine. "
            "Default: spark-pipeline.yml here or above.",
            metavar="[PIPELINE]",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="LOCATION", help="The checkpoint of a query that is no pipeline's."),
    ] = None,
    continue_from_ledger: Annotated[
        bool,
        typer.Option(
            "--continue-from-ledger", help="Go on after the rows that the target has; the checkpoint changes."
        ),
    ] = False,
    apply_again: Annotated[
        bool,
        typer.Option(
            "--apply-again", help="Write the checkpoint's micro-batches: upserts replace rows, appends double."
        ),
    ] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Show where a checkpoint and the ledger of a target do not belong together, and choose which of them counts.

    Example: `barnabas pipelines repair shop --continue-from-ledger`
    """
    if continue_from_ledger and apply_again:
        fail("give --continue-from-ledger or --apply-again, not both", EXIT_USAGE)
    found = _conflicts(pipeline, checkpoint)
    if not (continue_from_ledger or apply_again):
        _show(found, json)
        return
    if not found:
        note("nothing to repair")
        return
    targets = ", ".join(sorted({conflict.target for _, _, conflict in found}))
    if apply_again:
        what = f"write the micro-batches of the checkpoint to {targets} again? Rows without a key appear twice."
        confirm(yes, what)
        for history in dict.fromkeys(history for _, history, _ in found):
            history.apply_again()
    else:
        _check_continues(found)
        what = f"go on after the rows that {targets} has? The query must not be running. The checkpoint is changed."
        confirm(yes, what)
        for _, history, conflict in found:
            assert conflict.stored.offsets is not None, "checked before"
            history.continue_from(conflict.stored.batch_id, conflict.stored.offsets)
    note("start the query again")


def _conflicts(pipeline: str | None, checkpoint: str | None) -> list[tuple[str, CheckpointHistory, BatchConflict]]:
    """The flow, or the checkpoint, and its history, for each conflict."""
    from barnabas.spark.delivery.checkpoints import CheckpointHistory
    from barnabas.spark.pipelines.state import find_project

    places: list[tuple[str, str]] = []
    if checkpoint is not None:
        places.append((checkpoint, checkpoint))
    else:
        try:
            project = find_project(pipeline)
        except BarnabasError as error:
            fail(str(error))
        if project.is_running:
            fail(f"{project.spec.name} is running; stop it first: barnabas pipelines stop {project.spec.name}")
        flows: list[dict[str, Any]] = project.run().get("flows", [])
        places += [(flow["flow"], flow["checkpoint"]) for flow in flows if flow.get("checkpoint")]
    found = []
    for name, place in places:
        history = CheckpointHistory(place)
        found += [(name, history, conflict) for conflict in history.conflicts()]
    return found


def _check_continues(found: list[tuple[str, CheckpointHistory, BatchConflict]]) -> None:
    for name, history, conflict in found:
        reason = ""
        if conflict.stored.offsets is None:
            reason = "its ledger does not have the offsets of the micro-batch"
        elif not conflict.alone:
            reason = "the query writes to several tables, which may have different micro-batches"
        elif history.has_state:
            reason = "the query keeps state, which belongs to the checkpoint's micro-batch"
        if reason:
            fail(
                f"{name} cannot continue from the ledger of {conflict.target}: {reason}. Restore the newest"
                " checkpoint, or give --apply-again"
            )


def _show(found: list[tuple[str, CheckpointHistory, BatchConflict]], as_json: bool) -> None:
    from barnabas.spark.delivery.identity import digest_of, source_lines

    rows: list[dict[str, Any]] = []
    for name, history, conflict in found:
        planned = history.offsets(conflict.stored.batch_id)
        rows.append(
            {
                "flow": name,
                "target": conflict.target,
                "query": conflict.query_id,
                "batch": conflict.batch_id,
                "ledger_batch": None if conflict.stored.batch_id < 0 else conflict.stored.batch_id,
                "ledger_sha256": conflict.stored.digest,
                "ledger_offsets": None
                if conflict.stored.offsets is None
                else list(source_lines(conflict.stored.offsets)),
                "checkpoint": history.place,
                "checkpoint_sha256": None if planned is None else digest_of(planned),
                "checkpoint_offsets": None if planned is None else list(source_lines(planned)),
            }
        )
    if as_json:
        print_json(rows)
        return
    print_table(
        ["FLOW", "TARGET", "BATCH>", "LEDGER HAS>", "UP TO", "CHECKPOINT HAS UP TO"],
        [
            (r["flow"], r["target"], r["batch"], r["ledger_batch"], r["ledger_offsets"], r["checkpoint_offsets"])
            for r in rows
        ],
        empty="nothing to repair",
    )
    if rows:
        note("choose with --continue-from-ledger (no row twice) or --apply-again (no row of the checkpoint left out)")
