"""Shell: `barnabas transactions`: transactional ids, open and hanging transactions, aborting and fencing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.options import Bootstrap, CommandConfig, DryRun, Json, Yes, noun
from barnabas.cli.output import confirm, fail, note, print_json, print_table
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.transactions import ActiveProducer, HangingTransaction, TransactionListing
    from barnabas.core.ids import TopicPartition

app = noun(
    "Transactions: transactional ids, open transactions, and hanging transactions, which no coordinator will end."
)

Topic = Annotated[str, typer.Argument(help="The topic.", metavar="TOPIC")]
Partition = Annotated[int, typer.Argument(help="The partition's number.", metavar="PARTITION", min=0)]

MAX_TIMEOUT_MS = 900_000
"""transaction.max.timeout.ms: the coordinator aborts every transaction that is older, unless the transaction hangs."""


@app.command("list")
def list_transactions(
    state: Annotated[list[str] | None, typer.Option(help="Only in this state, e.g. Ongoing; repeatable.")] = None,
    producer_id: Annotated[list[int] | None, typer.Option(help="Only of this producer id; repeatable.")] = None,
    longer_than: Annotated[int, typer.Option(help="Only transactions older than this.", metavar="MS")] = -1,
    pattern: Annotated[str | None, typer.Option(help="Only ids that this regular expression matches.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """List transactional ids.

    Example: `barnabas transactions list --state Ongoing --longer-than 60000`
    """

    async def command(admin: AsyncAdmin) -> list[TransactionListing]:
        return await admin.list_transactions(
            states=state or (), producer_ids=producer_id or (), longer_than_ms=longer_than, pattern=pattern
        )

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json([asdict(listing) for listing in found])
    else:
        rows = [(t.transactional_id, t.state, t.producer_id, t.coordinator) for t in found]
        print_table(["TRANSACTIONAL ID", "STATE", "PRODUCER ID", "COORDINATOR"], rows, empty="no transactional ids")


@app.command()
def describe(
    transactional_id: Annotated[str, typer.Argument(help="The transactional id.", metavar="ID")],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Show the transaction of an id: its producer, its timeout and age, and its partitions.

    Example: `barnabas transactions describe billing-1`
    """
    from barnabas.core.clock import SystemClock
    from barnabas.core.errors import KafkaError

    async def command(admin: AsyncAdmin) -> dict[str, Any]:
        described = (await admin.describe_transactions([transactional_id]))[transactional_id]
        if isinstance(described, KafkaError):
            raise described
        ongoing = described.state == "Ongoing"
        return {
            **asdict(described),
            "partitions": [str(tp) for tp in described.partitions],
            "lasted_ms": SystemClock().now_ms() - described.started_ms if ongoing else None,
        }

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(found)
    else:
        shown = {**found, "partitions": " ".join(found["partitions"]) or "-"}
        print_table(["", ""], [(name.replace("_", " "), value) for name, value in shown.items() if value is not None])


@app.command("describe-producers")
def describe_producers(
    topic: Topic,
    partition: Partition,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Show the producers whose state a partition keeps, and the start offsets of their open transactions.

    Example: `barnabas transactions describe-producers orders 0`
    """
    from barnabas.core.ids import TopicPartition

    found = run_admin(
        bootstrap_server,
        lambda admin: producers_of(admin, TopicPartition(topic, partition)),
        read_properties(command_config),
    )
    if json:
        print_json([asdict(producer) for producer in found])
    else:
        columns = ["PRODUCER ID", "EPOCH", "COORDINATOR EPOCH", "LAST SEQUENCE", "LAST TIMESTAMP", "OPEN SINCE OFFSET"]
        print_table(columns, [tuple(asdict(producer).values()) for producer in found], empty="no producers")


@app.command()
def abort(
    topic: Topic,
    partition: Partition,
    start_offset: Annotated[
        int | None,
        typer.Option(help=("The first offset of the transaction, as find-hanging shows it."), metavar="OFFSET"),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option(help=("The producer id of the transaction, instead of the offset."))
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Abort a hanging transaction in one partition.

    If a coordinator still knows the transaction, use `fence` instead: otherwise the transaction could be aborted in
    this partition and committed in others.

    Example: `barnabas transactions abort orders 0 --start-offset 1234`
    """
    from barnabas.core.ids import TopicPartition

    tp = TopicPartition(topic, partition)
    if (start_offset is None) == (producer_id is None):
        fail("Name the transaction: give --start-offset or --producer-id.", 2)

    async def find(admin: AsyncAdmin) -> ActiveProducer | None:
        return open_transaction(await producers_of(admin, tp), start_offset, producer_id)

    settings = read_properties(command_config)
    found = run_admin(bootstrap_server, find, settings)
    if found is None:
        fail(f"No such open transaction in {tp}; `barnabas transactions describe-producers` shows them.")
    what = f"the transaction of producer {found.producer_id}, open in {tp} since offset {found.open_since}"
    if dry_run:
        note(f"Would abort {what}.")
        return
    confirm(yes, f"Abort {what}?")
    run_admin(bootstrap_server, lambda admin: admin.abort_transaction(tp, found), settings)
    note(f"Aborted {what}.")


@app.command("find-hanging")
def find_hanging(
    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only in this topic; repeatable.")] = None,
    broker: Annotated[int | None, typer.Option(help="Only in partitions that this broker leads.")] = None,
    older_than: Annotated[
        int, typer.Option(help=("Only transactions without a write for at least this long."), metavar="MS")
    ] = (MAX_TIMEOUT_MS),
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Find transactions that hold back read_committed consumers and that no coordinator will ever end.

    Example: `barnabas transactions find-hanging --topic orders`
    """
    from barnabas.core.clock import SystemClock

    async def command(admin: AsyncAdmin) -> list[HangingTransaction]:
        partitions = await partitions_of(admin, topic, broker)
        return await admin.find_hanging_transactions(
            partitions, older_than_ms=older_than, now_ms=SystemClock().now_ms()
        )

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(
            [{**asdict(h.producer), "topic": h.partition.topic, "partition": h.partition.partition} for h in found]
        )
        return
    rows = [(str(h.partition), h.producer.producer_id, h.producer.open_since) for h in found]
    print_table(["PARTITION", "PRODUCER ID", "START OFFSET"], rows, empty="no hanging transactions")
    if found:
        note("`barnabas transactions abort TOPIC PARTITION --start-offset OFFSET` aborts one of them.")


@app.command()
def fence(
    transactional_id: Annotated[str, typer.Argument(help="The transactional id.", metavar="ID")],
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Abort the open transaction of an id and fence its producer. Also ends a prepared transaction of two-phase commit.

    Example: `barnabas transactions fence billing-1`
    """
    confirm(yes, f"Fence the producer of {transactional_id!r} and abort its open transaction?")
    producer_id, epoch = run_admin(
        bootstrap_server, lambda admin: admin.fence_producer(transactional_id), read_properties(command_config)
    )
    note(f"The producer of {transactional_id!r} is fenced: the epoch of producer id {producer_id} is now {epoch}.")


async def producers_of(admin: AsyncAdmin, tp: TopicPartition) -> list[ActiveProducer]:
    """The producers whose state one partition keeps. Raises KafkaError."""
    from barnabas.core.errors import KafkaError

    found = (await admin.describe_producers([tp]))[tp]
    if isinstance(found, KafkaError):
        raise found
    return found


def open_transaction(
    producers: list[ActiveProducer], start_offset: int | None, producer_id: int | None
) -> ActiveProducer | None:
    """The open transaction with this start offset, or of this producer id; None if there is none."""
    for producer in producers:
        if producer.open_since >= 0 and (producer.open_since == start_offset or producer.producer_id == producer_id):
            return producer
    return None


async def partitions_of(admin: AsyncAdmin, topics: list[str] | None, broker: int | None) -> list[TopicPartition]:
    """All partitions, or those of some topics, or those that one broker leads. Raises KafkaError."""
    from barnabas.core.errors import KafkaError
    from barnabas.core.ids import TopicPartition

    names = topics or [listing.name for listing in await admin.list_topics(include_internal=True)]
    partitions = []
    for name, view in (await admin.describe_topics(names)).items():
        if isinstance(view, KafkaError):
            raise view
        partitions += [
            TopicPartition(name, index)
            for index, partition in enumerate(view.partitions)
            if broker is None or partition.leader == broker
        ]
    return partitions
