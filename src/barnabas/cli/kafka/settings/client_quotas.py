"""Shell: the quotas of users, clients and addresses in `kafka-configs`, in the form of Kafka's tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.arguments import Parser, emit
from barnabas.core.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.quotas import QuotaFilter

QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
_TITLES: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
Entities = Mapping[str, str | None]
"""Entity type to name; "" is the default entity, None is every entity of the type."""


async def describe_quotas(admin: AsyncAdmin, entities: Entities) -> None:
    """Print a line for each entity that has exactly these types."""
    found = await admin.describe_client_quotas(_filter(entities), strict=True)
    for entity, values in found.items():
        names = dict(entity)
        title = ", ".join(_title(kind, names[kind]) for kind in _TITLES if kind in names)
        emit(f"Quota configs for {title} are {', '.join(f'{key}={value}' for key, value in values.items())}")


async def alter_quotas(
    admin: AsyncAdmin, entities: Entities, added: Mapping[str, str], deleted: list[str], parser: Parser
) -> None:
    """Make the changes of `--add-config` and `--delete-config`. A quota that is not set cannot be deleted."""
    from barnabas.client.admin.quotas import quota_entity

    entity = quota_entity({kind: name or None for kind, name in entities.items()})
    present = (await admin.describe_client_quotas(_filter(entities), strict=True)).get(entity, {})
    unset = [key for key in deleted if key not in present]
    if unset:
        parser.error(f"Invalid config(s): {','.join(unset)}")
    changes: dict[str, float | None] = dict.fromkeys(deleted)
    for key, value in added.items():
        try:
            changes[key] = float(value)
        except ValueError:
            parser.error(f"Cannot parse quota configuration value for {key}: {value}")
    if not changes:
        parser.error("--alter needs --add-config, --add-config-file or --delete-config")
    error = (await admin.alter_client_quotas({entity: changes}))[entity]
    if isinstance(error, KafkaError):
        raise error
    for kind, name in entities.items():
        what = "client" if kind == "client-id" else kind
        updated = f"config for {what} {name}" if name else f"default config for {what}s in the cluster"
        emit(f"Completed updating {updated}.")


def _filter(entities: Entities) -> QuotaFilter:
    from barnabas.client.admin.quotas import ANY_NAME

    return {kind: ANY_NAME if name is None else name or None for kind, name in entities.items()}


def _title(kind: str, name: str | None) -> str:
    return f"the default {_TITLES[kind]}" if name is None else f"{_TITLES[kind]} '{name}'"
