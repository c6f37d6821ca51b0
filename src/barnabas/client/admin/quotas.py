"""Shell: client quotas: describing and changing them (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from barnabas.client.admin.requests import item_error
from barnabas.client.cluster.cluster import Cluster
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.quotas.limits import QuotaEntity
from barnabas.protocol.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


class AnyName(Enum):
    """The type of `ANY_NAME`."""

    ANY = "any"


ANY_NAME: Final = AnyName.ANY
"""In a filter: every name, and the default entity."""
QuotaFilter = Mapping[str, str | AnyName | None]
"""Entity type (`user`, `client-id` or `ip`) to its name; None is the default entity."""
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


def quota_entity(names: Mapping[str, str | None]) -> QuotaEntity:
    """The entity with these names by type, for example {"user": "alice", "client-id": None}; None is the default."""
    return tuple(sorted(names.items(), key=lambda item: item[0]))


async def describe_client_quotas(
    cluster: Cluster, selected: QuotaFilter, *, strict: bool, deadline: float
) -> dict[QuotaEntity, dict[str, float]]:
    """The quotas of the entities that have all names of the filter; with `strict`, of those that have no others.
    Raises KafkaError."""
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(
                entity_type=kind,
                match_type=_SPECIFIED if name is ANY_NAME else _DEFAULT if name is None else _EXACT,
                match=name if isinstance(name, str) else None,
            )
            for kind, name in selected.items()
        ],
        strict=strict,
    )

    async def attempt() -> DescribeClientQuotasResponse:
        response: DescribeClientQuotasResponse = await cluster.ask_any(request, deadline=deadline)
        if response.error_code:
            raise item_error(response.error_code, response.error_message, "Describing client quotas")
        return response

    found: DescribeClientQuotasResponse = await cluster.retrying("Describing client quotas", attempt, deadline=deadline)
    return {
        quota_entity({part.entity_type: part.entity_name for part in entry.entity}): {
            value.key: value.value for value in entry.values
        }
        for entry in found.entries or ()
    }


async def alter_client_quotas(
    cluster: Cluster,
    changes: Mapping[QuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool,
    deadline: float,
) -> dict[QuotaEntity, KafkaError | None]:
    """Set the quotas of entities, and remove those whose value is None. The result of each entity is None, or its
    error."""
    if not changes:
        return {}
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[
                    OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                    for key, value in values.items()
                ],
            )
            for entity, values in changes.items()
        ],
        validate_only=validate_only,
    )

    async def attempt() -> AlterClientQuotasResponse:
        response: AlterClientQuotasResponse = await cluster.send_controller(request, deadline=deadline)
        if response.entries and all(entry.error_code == ErrorCode.NOT_CONTROLLER for entry in response.entries):
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return response

    response: AlterClientQuotasResponse = await cluster.retrying("Altering client quotas", attempt, deadline=deadline)
    results: dict[QuotaEntity, KafkaError | None] = {}
    for entry in response.entries:
        entity = quota_entity({part.entity_type: part.entity_name for part in entry.entity})
        what = f"Altering the quotas of {entity_text(entity)}"
        results[entity] = item_error(entry.error_code, entry.error_message, what) if entry.error_code else None
    return results


def entity_text(entity: QuotaEntity) -> str:
    """For example `user alice, client-id <default>`."""
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)
