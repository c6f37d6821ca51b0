"""Shell: `kafka-configs`: --describe and --alter for topics, brokers and their loggers, groups, client metrics, users,
clients and addresses."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from barnabas.cli.kafka.arguments import Parser, client_settings, emit, split_list, split_pairs
from barnabas.cli.session import read_properties, run_admin
from barnabas.core.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.values import ConfigResource

_TYPES = {
    "topics": "topic",
    "brokers": "broker",
    "groups": "group",
    "users": "user",
    "clients": "client-id",
    "ips": "ip",
    "broker-loggers": "broker-logger",
    "client-metrics": "client-metrics",
}
_WITH_QUOTAS = {"user": "user", "client": "client-id", "ip": "ip"}
"""The flags of entities that have quotas, and the types of the entities."""


def build_parser() -> Parser:
    parser = Parser("kafka-configs", "Describe or change the configs of a topic, a broker or a group.")
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument("--describe", action="store_true")
    actions.add_argument("--alter", action="store_true")
    parser.add_argument("--entity-type", metavar="TYPE", help=", ".join(_TYPES), action="append", default=[])
    parser.add_argument("--entity-name", action="append", dest="entity_names", default=[])
    parser.add_argument("--entity-default", action="append_const", const="", dest="entity_names")
    parser.add_argument("--topic")
    parser.add_argument("--broker")
    parser.add_argument("--broker-defaults", action="store_true")
    parser.add_argument("--group")
    parser.add_argument("--all", action="store_true", help="include configs with their default value")
    parser.add_argument("--add-config", help="k1=v1,k2=[v1,v2]")
    parser.add_argument("--add-config-file", help="a .properties file")
    parser.add_argument("--delete-config", help="k1,k2")
    for flag in _WITH_QUOTAS:
        parser.add_argument(f"--{flag}")
        parser.add_argument(f"--{flag}-defaults", action="store_const", const="", dest=flag)
    parser.add_argument("--client-metrics", help="a subscription of client metrics (KIP-714)")
    parser.add_argument("--broker-logger", metavar="ID", help="the loggers of a broker, whose configs are their levels")
    parser.refuse("--bootstrap-controller", why="use --bootstrap-server with the address of a broker")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    entities = _entities(options, parser)
    (kind, name), *_ = entities.items()

    async def command(admin: AsyncAdmin) -> None:
        if kind in _WITH_QUOTAS.values():
            await users_and_clients(admin, entities, options, parser)
        elif options.describe:
            await describe(admin, kind, name, show_all=options.all)
        else:
            await alter(admin, kind, name or "", options, parser)

    run_admin(options.bootstrap_server, command, client_settings(options))


def _entities(options: argparse.Namespace, parser: Parser) -> dict[str, str | None]:
    """The types and names of the entities that the options select: one, or a user and a client. The name "" is the
    default entity of the type, None is every entity of the type."""
    if options.broker_defaults:
        return {"broker": ""}
    given: dict[str, str | None] = {}
    for flag in ("topic", "broker", "group", "client_metrics", "broker_logger", *_WITH_QUOTAS):
        if getattr(options, flag) is not None:
            given[_WITH_QUOTAS.get(flag, flag.replace("_", "-"))] = getattr(options, flag)
    for place, word in enumerate(options.entity_type):
        if word not in _TYPES:
            parser.error(f"--entity-type {word} is not supported by this broker; the types are {', '.join(_TYPES)}")
        given[_TYPES[word]] = options.entity_names[place] if place < len(options.entity_names) else None
    if not given:
        parser.error("an entity is required: --topic, --broker, --broker-defaults, --group, --user or --entity-type")
    if len(given) > 1 and given.keys() != {"user", "client-id"}:
        parser.error("only the entity types users and clients may be given together")
    if options.alter and None in given.values():
        parser.error("--alter needs --entity-name or --entity-default")
    return given


def _resource(kind: str, name: str) -> ConfigResource:
    from barnabas.client.values import ConfigResource, ConfigResourceType

    if kind == "client-metrics":
        return ConfigResource(ConfigResourceType.CLIENT_METRICS, name)
    if kind == "broker-logger":
        return ConfigResource(ConfigResourceType.BROKER_LOGGER, name)
    if kind == "topic":
        return ConfigResource.topic(name)
    return ConfigResource.group(name) if kind == "group" else ConfigResource.broker(int(name) if name else None)


async def _names(admin: AsyncAdmin, kind: str) -> list[str]:
    if kind == "topic":
        return [t.name for t in await admin.list_topics(include_internal=True)]
    if kind == "group":
        return [g.group_id for g in await admin.list_groups()]
    if kind == "client-metrics":
        from barnabas.client.values import ConfigResourceType

        found = await admin.list_config_resources([ConfigResourceType.CLIENT_METRICS])
        return sorted(resource.name for resource in found)
    return [str(b.broker_id) for b in (await admin.describe_cluster()).brokers]


async def describe(admin: AsyncAdmin, kind: str, name: str | None, *, show_all: bool) -> None:
    from barnabas.client.values import ConfigSource

    own = {
        "topic": {ConfigSource.TOPIC},
        "group": {ConfigSource.GROUP},
        "client-metrics": {ConfigSource.CLIENT_METRICS},
        "broker-logger": {ConfigSource.DYNAMIC_BROKER_LOGGER},
        "broker": {ConfigSource.DYNAMIC_BROKER if name else ConfigSource.DYNAMIC_DEFAULT_BROKER},
    }[kind]
    for each in await _names(admin, kind) if name is None else [name]:
        resource = _resource(kind, each)
        entries = (await admin.describe_configs([resource], include_synonyms=True))[resource]
        if isinstance(entries, KafkaError):
            raise entries
        title = f"{kind} {each}" if each else f"{kind}s in the cluster"
        heading = f"All configs for {title} are:" if show_all else f"Dynamic configs for {title} are:"
        if not each:
            heading = f"Default configs for {title} are:"
        emit(heading)
        for e in sorted(entries.values(), key=lambda e: e.name):
            if show_all or e.source in own:
                synonyms = ", ".join(f"{_source(s.source)}:{s.name}={s.value}" for s in e.synonyms)
                emit(
                    f"  {e.name}={'null' if e.value is None else e.value} "
                    f"sensitive={'true' if e.is_sensitive else 'false'} synonyms={{{synonyms}}}"
                )


def _source(source: object) -> str:
    from barnabas.client.values import ConfigSource

    names = {
        ConfigSource.TOPIC: "DYNAMIC_TOPIC_CONFIG",
        ConfigSource.DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
        ConfigSource.DYNAMIC_DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
        ConfigSource.STATIC_BROKER: "STATIC_BROKER_CONFIG",
        ConfigSource.DEFAULT: "DEFAULT_CONFIG",
        ConfigSource.GROUP: "DYNAMIC_GROUP_CONFIG",
        ConfigSource.CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
        ConfigSource.DYNAMIC_BROKER_LOGGER: "DYNAMIC_BROKER_LOGGER_CONFIG",
    }
    return names.get(source, str(source))  # type: ignore[call-overload,no-any-return]  # any source may be asked for


async def users_and_clients(
    admin: AsyncAdmin, entities: dict[str, str | None], options: argparse.Namespace, parser: Parser
) -> None:
    """Describe or change the quotas of users, clients and addresses, and the SCRAM credentials of users."""
    from barnabas.cli.kafka.settings.client_quotas import QUOTAS, alter_quotas, describe_quotas
    from barnabas.cli.kafka.settings.user_credentials import alter_user, describe_users

    is_user = list(entities) == ["user"]
    name = entities.get("user")
    if options.describe:
        await describe_quotas(admin, entities)
        if is_user and name != "":
            await describe_users(admin, name)
        return
    deleted = split_list(options.delete_config or "")
    words = [*deleted, *(pair.partition("=")[0].strip() for pair in split_list(options.add_config or ""))]
    if is_user and not any(word in QUOTAS for word in words):
        if not name:
            parser.error("SCRAM credentials need the name of a user, not --entity-default or --user-defaults")
        await alter_user(admin, name, options.add_config or "", deleted, parser)
        return
    added = dict(read_properties(options.add_config_file)) if options.add_config_file else {}
    if options.add_config:
        added.update(split_pairs(split_list(options.add_config), parser))
    await alter_quotas(admin, entities, {key: str(value) for key, value in added.items()}, deleted, parser)


async def alter(admin: AsyncAdmin, kind: str, name: str, options: argparse.Namespace, parser: Parser) -> None:
    from barnabas.client.values import AlterOp, ConfigChange

    added: dict[str, object] = {}
    if options.add_config_file:
        added.update(read_properties(options.add_config_file))
    if options.add_config:
        added.update(split_pairs(split_list(options.add_config), parser))
    changes = [ConfigChange(k, str(v).removeprefix("[").removesuffix("]"), AlterOp.SET) for k, v in added.items()]
    changes += [ConfigChange(k, None, AlterOp.DELETE) for k in split_list(options.delete_config or "")]
    if not changes:
        parser.error("--alter needs --add-config, --add-config-file or --delete-config")
    resource = _resource(kind, name)
    error = (await admin.incremental_alter_configs({resource: changes}))[resource]
    if error is not None:
        raise error
    what = f"config for {kind} {name}" if name else f"default config for {kind}s in the cluster"
    emit(f"Completed updating {what}.")
