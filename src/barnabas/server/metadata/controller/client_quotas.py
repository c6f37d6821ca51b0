"""Machine: AlterClientQuotas (`ClientQuotaControlManager`), and the answer of DescribeClientQuotas.

An entity is a user, a client id, both together, or an address; the name None denotes the default entity. Each entity of
a request is changed or refused by itself, with all its keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.quotas.limits import CLIENT_ID, CONNECTION_RATE, IP, USER, QuotaEntity, QuotaKind
from barnabas.protocol.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryDataResponse,
)
from barnabas.protocol.wire.messages.describe_client_quotas import ComponentData
from barnabas.server.metadata.controller.answers import RefusedError, duplicates, invalid_request, message_of
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.small import QuotasImage
from barnabas.server.metadata.records import other
from barnabas.server.metadata.records.base import MetadataRecord

_LONG_MAX: Final = float((1 << 63) - 1)
_INT_MAX: Final = float((1 << 31) - 1)


class _Key(Struct, frozen=True):
    """A quota that can be set."""

    most: float
    whole: bool
    """Whether the value must be a whole number."""
    type_name: str


_CLIENT_KEYS: Final[Mapping[str, _Key]] = {
    QuotaKind.PRODUCE: _Key(_LONG_MAX, True, "LONG"),
    QuotaKind.FETCH: _Key(_LONG_MAX, True, "LONG"),
    QuotaKind.REQUEST: _Key(math.inf, False, "DOUBLE"),
    QuotaKind.CONTROLLER_MUTATION: _Key(math.inf, False, "DOUBLE"),
}
_IP_KEYS: Final[Mapping[str, _Key]] = {CONNECTION_RATE: _Key(_INT_MAX, True, "INT")}
CLIENT_QUOTA_KEYS: Final = tuple(str(key) for key in _CLIENT_KEYS)
"""The quotas that users and client ids can have."""
IP_QUOTA_KEYS: Final = tuple(_IP_KEYS)
"""The quotas that addresses can have."""


def decide_alter_client_quotas(
    image: ClusterImage, request: AlterClientQuotasRequest, ctx: DecideContext
) -> Decision[MetadataRecord, AlterClientQuotasResponse]:
    """The records of all entities whose change is valid; no records with `validate_only`."""
    twice = duplicates(_entity(entry.entity) for entry in request.entries)
    records: list[MetadataRecord] = []
    answers: dict[QuotaEntity, EntryDataResponse] = {}
    for entry in request.entries:
        entity = _entity(entry.entity)
        if entity in answers:
            continue
        answer = answers[entity] = EntryDataResponse(entity=entry.entity, error_message=None)
        try:
            if entity in twice:
                raise invalid_request(f"Ignoring duplicate entity {_text(entity)}")
            records += _change(image.quotas, entity, entry)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, message_of(error)
    response = AlterClientQuotasResponse(entries=list(answers.values()))
    return Decision(response, () if request.validate_only else records)


def _change(quotas: QuotasImage, entity: QuotaEntity, entry: EntryData) -> list[MetadataRecord]:
    """The records of the values that change. Raises RefusedError."""
    keys = _keys_of(entity)
    if repeated := duplicates(op.key for op in entry.ops):
        raise invalid_request(f"Duplicate quota key {min(repeated)} not updating quota for this entity {_text(entity)}")
    present = quotas.by_entity.get(entity, {})
    records: list[MetadataRecord] = []
    for op in entry.ops:
        if op.remove:
            if op.key in present:
                records.append(_record(entity, op.key, 0.0, remove=True))
            continue
        _check_value(keys, op.key, op.value)
        if present.get(op.key) != op.value:
            records.append(_record(entity, op.key, op.value, remove=False))
    return records


def _keys_of(entity: QuotaEntity) -> Mapping[str, _Key]:
    """The quotas that the entity can have. Raises RefusedError for an invalid entity."""
    names = dict(entity)
    if not entity:
        raise invalid_request("Invalid empty client quota entity")
    if len(names) < len(entity):
        twice = min(duplicates(kind for kind, _ in entity))
        raise invalid_request(f"Invalid client quota entity, duplicate entity entry {twice}")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise invalid_request(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise invalid_request(f"Empty {kind} not supported")
    if IP not in names:
        return _CLIENT_KEYS
    if len(names) > 1:
        raise invalid_request(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    address = names[IP]
    if address is not None:
        from ipaddress import ip_address  # imported here: a controller without quotas of addresses does not need it

        try:
            ip_address(address)
        except ValueError:
            raise invalid_request(f"{address} is not an IP address.") from None
    return _IP_KEYS


def _check_value(keys: Mapping[str, _Key], key: str, value: float) -> None:
    """Raises RefusedError for an unknown quota, or a value that it cannot have."""
    known = keys.get(key)
    if known is None:
        raise invalid_request(f"Invalid configuration key {key}; valid ones are {', '.join(keys)}")
    if not value > 0:
        raise invalid_request(f"Quota {key} must be greater than 0")
    if value > known.most or math.isinf(value):
        raise invalid_request(f"Proposed value for {key} is too large for a {known.type_name}.")
    if known.whole and abs(value % 1.0) > 1e-6:
        raise invalid_request(f"{key} cannot be a fractional value.")


def _entity(parts: Iterable[EntityData]) -> QuotaEntity:
    return tuple(sorted(((part.entity_type, part.entity_name) for part in parts), key=lambda p: (p[0], p[1] or "")))


def _record(entity: QuotaEntity, key: str, value: float, *, remove: bool) -> other.ClientQuotaRecord:
    parts = [other.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    return other.ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove)


def _text(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity)


class MatchType:
    """How a component of DescribeClientQuotas matches an entity."""

    EXACT: Final = 0
    DEFAULT: Final = 1
    SPECIFIED: Final = 2
    """Any name, or the default."""


def find_client_quotas(
    quotas: QuotasImage, components: Iterable[ComponentData], *, strict: bool
) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
    """The entities that have all components of the filter, and no other one if it is strict.

    Raises RefusedError for an invalid filter (`ClientQuotasImage.describe`).
    """
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for component in components:
        kind = component.entity_type
        _check_component(component, kind in exact or kind in specified)
        if component.match_type == MatchType.SPECIFIED:
            specified.add(kind)
        else:
            exact[kind] = component.match
    named = exact.keys() | specified
    if IP in named and len(named) > 1:
        raise invalid_request(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
    found = []
    for entity, limits in quotas.by_entity.items():
        names = dict(entity)
        if strict and len(names) != len(named):
            continue
        if all(kind in names for kind in named) and all(names[kind] == name for kind, name in exact.items()):
            found.append((entity, limits))
    return found


def _check_component(component: ComponentData, is_repeated: bool) -> None:
    """Raises RefusedError."""
    kind, match = component.entity_type, component.match
    if not kind:
        raise invalid_request("Invalid empty entity type.")
    if is_repeated:
        raise invalid_request(f"Entity type {kind} cannot appear more than once in the filter.")
    if kind not in (USER, CLIENT_ID, IP):
        raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
    if component.match_type == MatchType.EXACT:
        if match is None:
            raise invalid_request("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    elif component.match_type in (MatchType.DEFAULT, MatchType.SPECIFIED):
        if match is not None:
            name = "DEFAULT" if component.match_type == MatchType.DEFAULT else "SPECIFIED"
            raise invalid_request(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
    else:
        raise invalid_request(f"Unknown match type {component.match_type}")
