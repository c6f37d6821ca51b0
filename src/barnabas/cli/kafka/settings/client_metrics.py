"""Shell: `kafka-client-metrics`: subscriptions of client metrics (KIP-714)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING
from uuid import uuid4

from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.session import run_admin
from barnabas.core.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.values import ConfigResource

_CONFIGS = {"metrics": "metrics", "interval": "interval.ms", "match": "match"}


def build_parser() -> Parser:
    parser = Parser("kafka-client-metrics", "List, describe, change or delete subscriptions of client metrics.")
    actions = parser.add_mutually_exclusive_group(required=True)
    for flag in ("list", "describe", "alter", "delete"):
        actions.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--name", help="the name of the subscription")
    parser.add_argument("--generate-name", action="store_true", help="create a subscription with a name of its own")
    parser.add_argument(
        "--metrics", metavar="PREFIX,...", help="prefixes of metric names; `*` means all, an empty text the default"
    )
    parser.add_argument("--interval", metavar="MS", help="how often clients push; an empty text means the default")
    parser.add_argument(
        "--match", metavar="KEY=REGEX,...", help="the clients of the subscription; an empty text means all clients"
    )
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    if options.generate_name and options.name is not None:
        parser.error("--name and --generate-name cannot be used together")
    if options.alter and options.name is None and not options.generate_name:
        parser.error("--alter needs --name or --generate-name")
    if options.delete and options.name is None:
        parser.error("--delete needs --name")
    if options.alter and all(getattr(options, flag) is None for flag in _CONFIGS):
        parser.error("--alter needs --metrics, --interval or --match")

    async def command(admin: AsyncAdmin) -> None:
        if options.list:
            for name in await _names(admin):
                emit(name)
        elif options.describe:
            for name in await _names(admin) if options.name is None else [options.name]:
                await _describe(admin, name)
        elif options.alter:
            await _alter(admin, options.name or str(uuid4()), options)
        else:
            await _delete(admin, options.name)

    run_admin(options.bootstrap_server, command, client_settings(options))


def _resource(name: str) -> ConfigResource:
    from barnabas.client.values import ConfigResource, ConfigResourceType

    return ConfigResource(ConfigResourceType.CLIENT_METRICS, name)


async def _names(admin: AsyncAdmin) -> list[str]:
    from barnabas.client.values import ConfigResourceType

    found = await admin.list_config_resources([ConfigResourceType.CLIENT_METRICS])
    return sorted(resource.name for resource in found)


async def _set_configs(admin: AsyncAdmin, name: str) -> dict[str, str | None]:
    """The configs of a subscription that are set."""
    from barnabas.client.values import ConfigSource

    resource = _resource(name)
    entries = (await admin.describe_configs([resource]))[resource]
    if isinstance(entries, KafkaError):
        raise entries
    return {e.name: e.value for e in entries.values() if e.source is ConfigSource.CLIENT_METRICS}


async def _describe(admin: AsyncAdmin, name: str) -> None:
    emit(f"Client metrics configs for {name} are:")
    for key, value in sorted((await _set_configs(admin, name)).items()):
        emit(f"  {key}={value}")


async def _alter(admin: AsyncAdmin, name: str, options: argparse.Namespace) -> None:
    from barnabas.client.values import AlterOp, ConfigChange

    changes = []
    for flag, key in _CONFIGS.items():
        value = getattr(options, flag)
        if value is not None:
            changes.append(ConfigChange(key, value or None, AlterOp.SET if value else AlterOp.DELETE))
    resource = _resource(name)
    error = (await admin.incremental_alter_configs({resource: changes}))[resource]
    if error is not None:
        raise error
    emit(f"Altered client metrics config for {name}.")


async def _delete(admin: AsyncAdmin, name: str) -> None:
    from barnabas.client.values import AlterOp, ConfigChange

    changes = [ConfigChange(key, None, AlterOp.DELETE) for key in await _set_configs(admin, name)]
    resource = _resource(name)
    error = (await admin.incremental_alter_configs({resource: changes}))[resource] if changes else None
    if error is not None:
        raise error
    emit(f"Deleted client metrics config for {name}.")
