"""Shell: `barnabas topics`: list, describe, create, alter and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.completing import topics as complete_topics
from barnabas.cli.options import Bootstrap, CommandConfig, DryRun, Json, Yes, noun
from barnabas.cli.output import confirm, note, print_json, print_table
from barnabas.cli.session import DEFAULT_BOOTSTRAP, parse_settings, read_properties, run_admin
from barnabas.cli.watch.why import topics_why

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.cluster.metadata import TopicDescription

app = noun("Topics: the named streams to which records are written and from which they are read.")

app.command("why")(topics_why)

Names = Annotated[list[str], typer.Argument(help="Topic names.", metavar="TOPIC...", autocompletion=complete_topics)]


@app.command("list")
def list_topics(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """List all topics.

    Example: `barnabas topics list --json | jq -r .[].topic`
    """

    async def command(admin: AsyncAdmin) -> list[dict[str, Any]]:
        listings = await admin.list_topics(include_internal=internal)
        return [{"topic": t.name, "id": _id(t.topic_id), "partitions": t.partition_count} for t in listings]

    topics = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(topics)
    else:
        print_table(
            ["TOPIC", "PARTITIONS>", "ID"], [(t["topic"], t["partitions"], t["id"]) for t in topics], empty="no topics"
        )


@app.command()
def describe(
    topics: Names,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Show partitions with leaders, replicas, in-sync replicas and offsets, and the configs that were set.

    Example: `barnabas topics describe orders`
    """

    async def command(admin: AsyncAdmin) -> list[dict[str, Any]]:
        return [await describe_topic(admin, view) for view in await existing_topics(admin, topics)]

    described = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(described)
        return
    for topic in described:
        set_configs = " ".join(f"{k}={v}" for k, v in topic["configs"].items()) or "(all defaults)"
        note(f"{topic['topic']}  id {topic['id']}  configs: {set_configs}")
        print_table(
            ["PARTITION>", "LEADER>", "REPLICAS", "ISR", "START>", "END>", "RECORDS>"],
            [
                (p["partition"], p["leader"], p["replicas"], p["isr"], p["start"], p["end"], _span(p))
                for p in topic["partitions"]
            ],
        )


async def existing_topics(admin: AsyncAdmin, names: list[str]) -> list[TopicDescription]:
    """The descriptions of the topics. Raises the KafkaError of the first topic that has one."""
    from barnabas.core.errors import KafkaError

    views = []
    for view in (await admin.describe_topics(names)).values():
        if isinstance(view, KafkaError):
            raise view
        views.append(view)
    return views


async def describe_topic(admin: AsyncAdmin, view: TopicDescription) -> dict[str, Any]:
    """A topic's partitions with their offsets, and the configs that differ from their defaults."""
    from barnabas.client.values import EARLIEST, LATEST, ConfigResource, ConfigSource
    from barnabas.core.errors import KafkaError

    partitions = [p.topic_partition for p in view.partitions if p.leader >= 0]
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    resource = ConfigResource.topic(view.name)
    configs = (await admin.describe_configs([resource]))[resource]
    if isinstance(configs, KafkaError):
        raise configs

    def offset(results: dict[Any, Any], key: Any) -> int | None:
        result = results.get(key)
        return None if result is None or isinstance(result, KafkaError) else int(result.offset)

    return {
        "topic": view.name,
        "id": _id(view.topic_id),
        "configs": {e.name: e.value for e in configs.values() if e.source is ConfigSource.TOPIC},
        "partitions": [
            {
                "partition": p.partition,
                "leader": p.leader,
                "leader_epoch": p.leader_epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "start": offset(starts, p.topic_partition),
                "end": offset(ends, p.topic_partition),
            }
            for p in view.partitions
        ],
    }


@app.command()
def create(
    topics: Names,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="-1: the broker's num.partitions.")] = -1,
    replication_factor: Annotated[int, typer.Option(help="-1: the broker's default.replication.factor.")] = -1,
    config: Annotated[list[str] | None, typer.Option("--config", "-c", help="name=value, repeatable.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do not fail if the topic exists.")] = False,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Create topics.

    Example: `barnabas topics create orders --partitions 4 -c retention.ms=86400000`
    """
    from barnabas.client.values import NewTopic
    from barnabas.core.errors import ErrorCode, KafkaError

    wanted = [NewTopic(name, partitions, replication_factor, dict(parse_settings(config))) for name in topics]

    async def command(admin: AsyncAdmin) -> list[dict[str, Any]]:
        created = []
        for name, result in (await admin.create_topics(wanted, validate_only=dry_run)).items():
            if isinstance(result, KafkaError):
                if if_not_exists and result.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    continue
                raise result
            created.append({"topic": name, "id": _id(result.topic_id), "partitions": result.num_partitions})
        return created

    created = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(created)
    else:
        for topic in created:
            note(f"{'would create' if dry_run else 'created'} {topic['topic']} ({topic['partitions']} partitions)")


@app.command()
def alter(
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topics)],
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="The new total; it can only grow.")],
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Increase the number of partitions. Keys may then map to other partitions than before.

    Example: `barnabas topics alter orders --partitions 8`
    """

    async def command(admin: AsyncAdmin) -> None:
        error = (await admin.create_partitions({topic: partitions}, validate_only=dry_run))[topic]
        if error is not None:
            raise error

    run_admin(bootstrap_server, command, read_properties(command_config))
    note(f"{topic} {'could have' if dry_run else 'now has'} {partitions} partitions")


@app.command()
def delete(
    topics: Names,
    yes: Yes = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail if the topic does not exist.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Delete topics with all their records.

    Example: `barnabas topics delete orders --yes`
    """
    from barnabas.core.errors import ErrorCode, KafkaError

    confirm(yes, f"delete {', '.join(topics)} and every record in them?")

    async def command(admin: AsyncAdmin) -> None:
        for name, error in (await admin.delete_topics(topics)).items():
            if error is None:
                note(f"deleted {name}")
            elif error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise error
            elif not if_exists:
                raise KafkaError(error.code, f"There is no topic {name!r}. `barnabas topics list` shows all topics.")

    run_admin(bootstrap_server, command, read_properties(command_config))


def _id(topic_id: Any) -> str:
    from barnabas.core.ids import uuid_to_text

    return uuid_to_text(topic_id)


def _span(partition: dict[str, Any]) -> int | None:
    start, end = partition["start"], partition["end"]
    return None if start is None or end is None else end - start
