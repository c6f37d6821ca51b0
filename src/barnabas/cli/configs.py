"""Shell: `barnabas configs`: describe and alter the configs of topics, brokers and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.options import Bootstrap, CommandConfig, DryRun, Json, noun
from barnabas.cli.output import EXIT_USAGE, fail, note, print_json, print_table
from barnabas.cli.session import DEFAULT_BOOTSTRAP, parse_settings, read_properties, run_admin
from barnabas.client.explanations.words import counted

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.values import ConfigResource

app = noun("Configs: the settings of topics, brokers and groups, and the source of each value.")

Topic = Annotated[str | None, typer.Option("--topic", "-t", help="A topic.")]
Broker = Annotated[str | None, typer.Option("--broker", help="A broker id, or 'default' for all brokers.")]
Group = Annotated[str | None, typer.Option("--group", "-g", help="A group.")]


def resource_of(topic: str | None, broker: str | None, group: str | None) -> ConfigResource:
    """The one resource that the options name. Exits with a usage error if they name none or several."""
    from barnabas.client.values import ConfigResource

    given = [value for value in (topic, broker, group) if value is not None]
    if len(given) != 1:
        fail("give exactly one of --topic, --broker or --group", EXIT_USAGE)
    if topic is not None:
        return ConfigResource.topic(topic)
    if group is not None:
        return ConfigResource.group(group)
    assert broker is not None
    if broker != "default" and not broker.isdigit():
        fail(f"{broker!r} is not a broker: give its id, or 'default'", EXIT_USAGE)
    return ConfigResource.broker(None if broker == "default" else int(broker))


@app.command()
def describe(
    topic: Topic = None,
    broker: Broker = None,
    group: Group = None,
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Include settings with their default value.")] = False,
    docs: Annotated[bool, typer.Option("--docs", help="Show the meaning of each setting.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Show the settings that differ from their defaults, or all settings with --all.

    Example: `barnabas configs describe --topic orders --all --docs`
    """
    from barnabas.client.values import ConfigSource
    from barnabas.core.errors import KafkaError

    resource = resource_of(topic, broker, group)
    inherited = {ConfigSource.DEFAULT}
    if broker is None:  # a topic or group inherits broker settings, which were not set on the topic or group
        inherited |= {ConfigSource.STATIC_BROKER, ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER}

    async def command(admin: AsyncAdmin) -> list[dict[str, Any]]:
        result = (await admin.describe_configs([resource], include_synonyms=True, include_documentation=docs))[resource]
        if isinstance(result, KafkaError):
            raise result
        return [
            {
                "name": e.name,
                "value": e.value,
                "source": e.source.name,
                "read_only": e.is_read_only,
                "sensitive": e.is_sensitive,
                "synonyms": [f"{s.source.name}:{s.name}={s.value}" for s in e.synonyms],
                **({"documentation": e.documentation} if docs else {}),
            }
            for e in sorted(result.values(), key=lambda e: e.name)
            if show_all or e.source not in inherited
        ]

    entries = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(entries)
        return
    columns = ["NAME", "VALUE", "SOURCE", "READ-ONLY"] + (["MEANING"] if docs else [])
    rows = []
    for e in entries:
        shown = "(hidden)" if e["sensitive"] else e["value"]
        row = [e["name"], shown, e["source"], "yes" if e["read_only"] else ""]
        rows.append(row + ([e["documentation"] or ""] if docs else []))
    print_table(columns, rows, title=None)


@app.command()
def alter(
    topic: Topic = None,
    broker: Broker = None,
    group: Group = None,
    set_: Annotated[list[str] | None, typer.Option("--set", "-s", help="name=value")] = None,
    delete: Annotated[list[str] | None, typer.Option("--delete", "-d", help="name: reset to its default")] = None,
    append: Annotated[list[str] | None, typer.Option("--append", help="name=value: add to a list")] = None,
    subtract: Annotated[list[str] | None, typer.Option("--subtract", help="name=value: remove from a list")] = None,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Change some settings of one resource; its other settings keep their values.

    Example: `barnabas configs alter --topic orders --set retention.ms=86400000 --append cleanup.policy=compact`
    """
    from barnabas.client.values import AlterOp, ConfigChange

    resource = resource_of(topic, broker, group)
    changes = [ConfigChange(name, None, AlterOp.DELETE) for name in delete or []]
    for op, pairs in ((AlterOp.SET, set_), (AlterOp.APPEND, append), (AlterOp.SUBTRACT, subtract)):
        changes += [ConfigChange(name, value, op) for name, value in parse_settings(pairs).items()]
    if not changes:
        fail("no change given: use --set, --delete, --append or --subtract", EXIT_USAGE)

    async def command(admin: AsyncAdmin) -> None:
        error = (await admin.incremental_alter_configs({resource: changes}, validate_only=dry_run))[resource]
        if error is not None:
            raise error

    run_admin(bootstrap_server, command, read_properties(command_config))
    note(f"{counted(len(changes), 'setting')} {'would be changed' if dry_run else 'changed'}")
