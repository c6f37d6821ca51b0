"""Shell: prints the flows of a pipeline: as a table, as a live table in a terminal, and as lines."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.cli.output import print_table, size_text

_COLUMNS: Final = ("FLOW", "STATE", "ROWS>", "ROWS/S>", "LAG>", "BATCH>", "MS>", "WATERMARK", "STATE SIZE>")


def flow_cells(flow: Mapping[str, Any]) -> tuple[object, ...]:
    """The cells of one flow, in the order of the columns above. A flow that has failed 3 times in a row and is started
    again up to 10 times is `retrying 3/10`."""
    from barnabas.spark.pipelines.progress import reads_topics

    rate = flow["rows_per_second"]
    state = None
    if flow["state_rows"] is not None:
        state = f"{flow['state_rows']:,} rows, {size_text(flow['state_bytes'] or 0)}"
    restarts = f" {flow['failures']}/{flow['restarts_max']}" if flow["state"] == "retrying" else ""
    return (
        flow["flow"],
        flow["state"] + restarts,
        flow["rows"],
        None if rate is None else round(rate),
        "unknown" if flow["lag"] is None and reads_topics(flow) else flow["lag"],
        flow["batch_id"],
        flow["batch_ms"],
        (flow["watermark"] or "").removesuffix(".000Z") or None,
        state,
    )


def print_flows(flows: Sequence[Mapping[str, Any]], *, whole: bool = False) -> None:
    """Print the table on stdout. `whole`: with what each flow reads and writes, and its last error."""
    if whole:
        columns = ["FLOW", "TYPE", "READS", "WRITES", *_COLUMNS[1:], "ERROR"]
        rows = [
            (f["flow"], f["type"], f["reads"] or None, f["target"], *flow_cells(f)[1:], f.get("error")) for f in flows
        ]
        print_table(columns, rows)
    else:
        print_table(_COLUMNS, [flow_cells(flow) for flow in flows])


def print_sources(flows: Sequence[Mapping[str, Any]]) -> None:
    """Print how far each source of the flows is behind its topics. Nothing is printed without such a source."""
    rows = []
    for flow in flows:
        for source in flow.get("sources") or ():
            metrics = source["metrics"]
            if "maxOffsetsBehindLatest" not in metrics:
                continue
            size = metrics.get("estimatedTotalBytesBehindLatest")
            rows.append(
                (
                    flow["flow"],
                    source["description"],
                    int(metrics["minOffsetsBehindLatest"]),
                    round(float(metrics["avgOffsetsBehindLatest"])),
                    int(metrics["maxOffsetsBehindLatest"]),
                    None if size is None else size_text(int(size)),
                    metrics.get("lostRecords"),
                )
            )
    if rows:
        print_table(("FLOW", "SOURCE", "MIN LAG>", "AVG LAG>", "MAX LAG>", "BYTES BEHIND>", "LOST>"), rows)


class LiveFlows:
    """A table on stderr that is drawn again when the flows change. Use it as a context."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveFlows:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, flows: Sequence[Mapping[str, Any]]) -> None:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in _COLUMNS:
            table.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left")
        for flow in flows:
            cells = ["-" if c is None else f"{c:,}" if isinstance(c, int) else str(c) for c in flow_cells(flow)]
            table.add_row(*cells)
        self._live.update(table)

    def note(self, text: str) -> None:
        """Print a line above the table."""
        self._live.console.print(text, highlight=False, markup=False)


def seconds_ago(then_ms: int) -> str:
    seconds = max(0, time.time_ns() // 1_000_000 - then_ms) // 1_000
    hours, rest = divmod(seconds, 3_600)
    return f"{hours} h {rest // 60} min ago" if hours else f"{rest // 60} min {rest % 60} s ago"
