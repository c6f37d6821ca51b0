"""Shell: `barnabas logs`: log directories, sizes, offsets, files, and deleting old records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.logs.maintenance import compact, enforce_retention
from barnabas.cli.logs.moves import move
from barnabas.cli.logs.verify import repair, verify
from barnabas.cli.options import Bootstrap, CommandConfig, Json, Yes, noun
from barnabas.cli.output import EXIT_USAGE, confirm, emit, fail, note, print_json, print_table, size_text
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

app = noun("Logs: the partitions' files on the brokers' disks, and their offsets.")
app.command()(compact)
app.command("enforce-retention")(enforce_retention)
app.command("retain", hidden=True)(enforce_retention)  # the name in version 0.1.0
app.command()(move)
app.command()(verify)
app.command()(repair)


@app.command()
def dirs(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only these topics.")] = None,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Show the log directories of all brokers and the replicas in them, largest first.

    Example: `barnabas logs dirs --topic orders`
    """
    from barnabas.core.errors import KafkaError

    async def command(admin: AsyncAdmin) -> list[dict[str, Any]]:
        rows = []
        for broker, found in (await admin.describe_log_dirs()).items():
            for path, described in found.items():
                if isinstance(described, KafkaError):
                    rows.append({"broker": broker, "dir": path, "error": str(described)})
                    continue
                rows += [
                    {
                        "broker": broker,
                        "dir": path,
                        "partition": str(p),
                        "bytes": r.size_bytes,
                        "lag": None if r.offset_lag < 0 else r.offset_lag,
                        "future": r.is_future,
                    }
                    for p, r in described.replicas.items()
                    if not topic or p.topic in topic
                ]
        return sorted(rows, key=lambda r: -int(str(r.get("bytes", 0))))

    rows = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(rows)
        return
    table = [(r["broker"], r["dir"], _replica_text(r), size_text(r.get("bytes", 0))) for r in rows]
    print_table(["BROKER>", "DIRECTORY", "PARTITION", "SIZE>"], table)


def _replica_text(row: dict[str, Any]) -> str:
    if "partition" not in row:
        return f"OFFLINE: {row['error']}"
    behind = "unknown how far" if row.get("lag") is None else row["lag"]
    moving = f" (moving here, {behind} behind)" if row["future"] else ""
    return f"{row['partition']}{moving}"


@app.command()
def offsets(
    topics: Annotated[list[str], typer.Argument(help="TOPIC or TOPIC:0,1.", metavar="TOPIC...")],
    at: Annotated[str, typer.Option("--at", help="earliest, latest, max-timestamp, a time or PT1H ago.")] = "latest",
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Show the offset at a position of a partition: its end, its start, or the first record after a time.

    Example: `barnabas logs offsets orders --at PT1H`
    """
    from barnabas.core.errors import KafkaError

    timestamp = timestamp_of(at)

    async def command(admin: AsyncAdmin) -> list[dict[str, Any]]:
        from barnabas.client.admin.offset_resets import select_partitions

        partitions = await select_partitions(admin, "", topics)
        results = await admin.list_offsets(dict.fromkeys(partitions, timestamp))
        rows = []
        for partition, result in sorted(results.items()):
            if isinstance(result, KafkaError):
                raise KafkaError(result.code, f"{partition}: {result}")
            row = {"topic": partition.topic, "partition": partition.partition, "offset": result.offset}
            rows.append({**row, "timestamp": result.timestamp})
        return rows

    rows = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(rows)
    else:
        print_table(["TOPIC", "PARTITION>", "OFFSET>"], [(r["topic"], r["partition"], r["offset"]) for r in rows])


def timestamp_of(text: str) -> int:
    """A timestamp for ListOffsets: -1 latest, -2 earliest, -3 max-timestamp, or milliseconds since the epoch."""
    from barnabas.client.admin.offset_resets import ResetTarget

    specials = {
        "latest": -1,
        "earliest": -2,
        "max-timestamp": -3,
        "earliest-local": -4,
        "latest-tiered": -5,
        "earliest-pending-upload": -6,
    }
    if text in specials:
        return specials[text]
    if text.lstrip("-").isdigit():
        return int(text)
    target = ResetTarget.parse(text)
    if target.kind != "time":
        fail(f"{text!r} is not a position: write earliest, latest, max-timestamp, a time or a duration", EXIT_USAGE)
    return target.number


@app.command("delete-records")
def delete_records(
    partition: Annotated[str, typer.Argument(help="TOPIC:PARTITION", metavar="TOPIC:PARTITION")],
    before: Annotated[int, typer.Option("--before", help="The first offset to keep; -1 deletes all.")],
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Delete the records of a partition below an offset.

    Example: `barnabas logs delete-records orders:0 --before 1000 --yes`
    """
    from barnabas.core.errors import KafkaError
    from barnabas.core.ids import TopicPartition

    topic, colon, number = partition.rpartition(":")
    if not colon or not number.isdigit():
        fail(f"{partition!r} is not a partition: write TOPIC:PARTITION", EXIT_USAGE)
    confirm(yes, f"delete the records of {partition} before offset {before}?")
    target = TopicPartition(topic, int(number))

    async def command(admin: AsyncAdmin) -> int:
        result = (await admin.delete_records({target: before}))[target]
        if isinstance(result, KafkaError):
            raise result
        return result

    note(f"{partition} now starts at {run_admin(bootstrap_server, command, read_properties(command_config))}")


@app.command()
def dump(
    files: Annotated[list[Path], typer.Argument(help=".log, .index, .timeindex or .txnindex files, or a directory.")],
    records: Annotated[bool, typer.Option("--records", "-r", help="Print every record too.")] = False,
    values: Annotated[bool, typer.Option("--values", "-v", help="Print keys and values too.")] = False,
    metadata: Annotated[bool, typer.Option("--metadata", help="Decode records of __cluster_metadata.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Decode records of __consumer_offsets.")] = False,
    transactions: Annotated[
        bool, typer.Option("--transactions", help="Decode records of __transaction_state.")
    ] = False,
) -> None:
    """Print the contents of a partition's files, written by Barnabas or Apache Kafka, without a broker.

    Example: `barnabas logs dump data/orders-0 --values`

    For internal topics, --values decodes the records; the name of the directory says which topic it is.
    """
    from barnabas.cli.logs.decoders import DECODERS
    from barnabas.cli.logs.dump import DumpOptions, dump_file

    named = {"__cluster_metadata": metadata, "__consumer_offsets": offsets, "__transaction_state": transactions}
    asked = [topic for topic, wanted in named.items() if wanted]
    if len(asked) > 1:
        fail("--metadata, --offsets and --transactions exclude each other", EXIT_USAGE)
    suffixes = (".log", ".index", ".timeindex", ".txnindex")
    chosen = [f for path in files for f in (sorted(path.iterdir()) if path.is_dir() else [path])]
    try:
        for path in chosen:
            if path in files or path.suffix in suffixes:
                topic = asked[0] if asked else path.absolute().parent.name.rpartition("-")[0]
                decode = DECODERS.get(topic) if asked or values else None
                options = DumpOptions(records=records or values or bool(asked), payload=values, decode=decode)
                for line in dump_file(path, options):
                    emit(line)
    except (OSError, ValueError) as error:
        fail(str(error), EXIT_USAGE)
