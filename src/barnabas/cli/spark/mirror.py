"""Shell: `barnabas mirror`: MirrorMaker 2 on Spark. The verbs `status` and `translate` need no running mirror."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from barnabas.cli.options import Json, noun
from barnabas.cli.output import EXIT_FAILED, EXIT_USAGE, fail, note, print_json, print_table
from barnabas.cli.session import run
from barnabas.cli.spark.mirror_run import LAG_COLUMNS, File, lag_cells, lag_json, mirror_run, read_mirror_config

app = noun("Copy topics between clusters: MirrorMaker's file, topics and records, on Spark.")
app.command("run")(mirror_run)


@app.command("status")
def mirror_status(file: File, json: Json = False) -> None:
    """Show how far the copies are behind: in records and seconds, for each partition.

    The positions are those in the target clusters, of this mirror or of Kafka's. The exit code is 1 if records are
    gone that were not copied, or a topic was created anew.

    Example: `barnabas mirror status mm2.properties`
    """
    config = read_mirror_config(file)
    from barnabas.spark.mirror.running.lags import read_lags

    async def main() -> bool:
        shown, rows, losses = [], [], []
        for pair in config.pairs:
            if not pair.enabled:
                continue
            lags, lost = await read_lags(pair, time.time_ns() // 1_000_000)
            shown.append({"pair": pair.name, "lags": [lag_json(lag) for lag in lags], "losses": [str(x) for x in lost]})
            rows += [lag_cells(pair.name, lag) for lag in lags]
            losses += [f"{pair.name}: {loss}" for loss in lost]
        if json:
            print_json(shown)
        else:
            print_table(LAG_COLUMNS, rows, empty="no topics")
            for loss in losses:
                note(loss)
        return bool(losses)

    if run(main):
        raise typer.Exit(EXIT_FAILED)


@app.command("translate")
def mirror_translate(
    file: File,
    group: Annotated[str, typer.Option("--group", metavar="GROUP", help="The group in the source cluster.")],
    source: Annotated[str, typer.Option("--source", metavar="ALIAS", help="The cluster that the group committed in.")],
    target: Annotated[str, typer.Option("--target", metavar="ALIAS", help="The cluster that the group moves to.")],
    json: Json = False,
) -> None:
    """Show where a group goes on in the target cluster, as the checkpoints there say.

    These are the offsets of Kafka's `RemoteClusterUtils.translateOffsets`. The source cluster need not be reachable.

    Example: `barnabas mirror translate mm2.properties --group billing --source A --target B`
    """
    config = read_mirror_config(file)
    pair = config.pair(source, target)
    if pair is None:
        fail(f"there is no pair {source}->{target} in {file}", EXIT_USAGE)
    from barnabas.spark.mirror.running.translating import read_checkpoints

    async def main() -> None:
        found = await read_checkpoints(pair, group)
        if json:
            offsets = [
                {
                    "topic": c.partition.topic,
                    "partition": c.partition.partition,
                    "offset": c.downstream,
                    "upstream": c.upstream,
                }
                for c in found
            ]
            print_json({"group": group, "source": source, "target": target, "offsets": offsets})
            return
        print_table(
            ["TOPIC", "PARTITION", "OFFSET", "UPSTREAM OFFSET", "METADATA"],
            [(c.partition.topic, c.partition.partition, c.downstream, c.upstream, c.metadata or None) for c in found],
            empty=f"no checkpoints of the group {group}",
        )

    run(main)
