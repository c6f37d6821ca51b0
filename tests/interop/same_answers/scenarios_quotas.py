"""Table: scenarios about the quotas that clients, users and addresses have. Each is played to both brokers.

Clients are User:ANONYMOUS. `scenarios_throttling.py` has what clients with quotas experience.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product
from typing import Any

from barnabas.protocol.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.interop.same_answers.talk import Talk

Entity = dict[str, str | None]
"""Names by entity type; the name None is the default entity."""
PRODUCE, FETCH, REQUEST, MUTATION = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
CONNECTIONS = "connection_creation_rate"
EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def alter_client_quotas(talk: Talk) -> None:
    """Each key with each value for each kind of entity, then entities and keys that are invalid."""
    remove_all_quotas(talk)
    for entity, key in product(_ENTITIES, (PRODUCE, FETCH, REQUEST, MUTATION, CONNECTIONS, "no_such", "")):
        talk.ask(f"{key!r} of {entity}", _altering(entry(entity, {key: 10.0})), 1)
    for key, value in product((PRODUCE, REQUEST, MUTATION), _VALUES):
        talk.each(f"{key} {value}", _altering(entry({"user": "a"}, {key: value})), (0, 1))
    for value in _VALUES:
        talk.ask(f"{CONNECTIONS} {value}", _altering(entry({"ip": "1.2.3.4"}, {CONNECTIONS: value})), 1)
    for name in ("::1", "1.2.3", "1.2.3.4.5", "256.0.0.1", "localhost", "no such host", "1.2.3.4/8", "10", "é"):
        talk.ask(f"address {name!r}", _altering(entry({"ip": name}, {CONNECTIONS: 5.0})), 1)
    for bad in _INVALID_ENTITIES:
        talk.ask(f"entity {bad}", _altering(EntryData(entity=_entity(bad), ops=[OpData(key=PRODUCE, value=1.0)])), 1)
    twice = [OpData(key=PRODUCE, value=1.0), OpData(key=PRODUCE, value=2.0)]
    talk.ask("a key twice", _altering(EntryData(entity=_entity([("user", "k")]), ops=twice)), 1)
    both = [OpData(key=PRODUCE, value=1.0), OpData(key=PRODUCE, remove=True)]
    talk.ask("a key set and removed", _altering(EntryData(entity=_entity([("user", "k")]), ops=both)), 1)
    talk.ask("an entity twice", _altering(entry({"user": "t"}, {PRODUCE: 1.0}), entry({"user": "t"}, {FETCH: 1.0})), 1)
    mixed = _altering(entry({"user": "good"}, {PRODUCE: 1.0}), entry({"user": "bad"}, {PRODUCE: -1.0}))
    talk.ask("a good entity and a bad one", mixed, 1)
    talk.ask("a good key and a bad one", _altering(entry({"user": "half"}, {PRODUCE: 1.0, "no_such": 1.0})), 1)
    talk.ask("no keys", _altering(entry({"user": "none"}, {})), 1)
    talk.ask("nothing", _altering(), 1)
    talk.ask("removed, never set", _altering(entry({"user": "never"}, {PRODUCE: None})), 1)
    talk.ask("removed, an unknown key", _altering(entry({"user": "never"}, {"no_such": None})), 1)
    talk.ask("checked only", _altering(entry({"user": "checked"}, {PRODUCE: 1.0}), check=True), 1)
    talk.ask("checked only, bad", _altering(entry({"user": "checked"}, {PRODUCE: 0.5}), check=True), 1)
    only_kafkas = [entry({"ip": name}, {CONNECTIONS: None}) for name in ("1.2.3", "localhost", "10")]
    only_kafkas += [entry({"user": "twice"}, {PRODUCE: None})]
    only_kafkas += [entry({"user": "t"}, {PRODUCE: None})]  # an error, but Kafka has changed the first of the two
    talk.quietly(_altering(*only_kafkas), 1)
    _alter_and_wait(talk, entry({"user": "last"}, {PRODUCE: 3.0}))
    talk.ask("all that were set", _describing(), 1)
    remove_all_quotas(talk)


def describe_client_quotas(talk: Talk) -> None:
    """Each match of a user, of a client id and of both, strict and not; addresses; invalid filters."""
    remove_all_quotas(talk)
    _alter_and_wait(talk, *(entry(entity, {_key_of(entity): 1.0 + n}) for n, entity in enumerate(_SET)))
    matches: list[tuple[int, str | None] | None] = [
        None,
        (EXACT, "a"),
        (EXACT, "b"),
        (EXACT, "<default>"),
        (DEFAULT, None),
        (SPECIFIED, None),
    ]
    for user, client, strict in product(matches, matches, (False, True)):
        components = [
            ComponentData(entity_type=kind, match_type=match[0], match=match[1])
            for kind, match in (("user", user), ("client-id", client))
            if match is not None
        ]
        talk.ask(f"user {user}, client {client}, strict {strict}", _describing(*components, strict=strict), 1)
    for match, strict in product((*matches, (EXACT, "1.2.3.4")), (False, True)):
        if match is not None:
            component = ComponentData(entity_type="ip", match_type=match[0], match=match[1])
            talk.each(f"ip {match}, strict {strict}", _describing(component, strict=strict), (0, 1))
    for label, components in _INVALID_FILTERS.items():
        filters = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
        talk.each(label, _describing(*filters), (0, 1))
    remove_all_quotas(talk)


_ENTITIES: tuple[Entity, ...] = (
    {"user": "a"},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
    {"user": "a", "client-id": "c"},
    {"user": None, "client-id": "c"},
    {"user": "a", "client-id": None},
    {"user": None, "client-id": None},
    {"ip": "1.2.3.4"},
    {"ip": None},
)
_SET: tuple[Entity, ...] = (*_ENTITIES, {"user": "b"}, {"user": "b", "client-id": "a"}, {"client-id": "a"})
_VALUES = (math.inf, 0.0, -1.0, 0.5, 1.5, 1.0, 1e-7, 1.0000001, 2147483647.0, 2147483648.0, 1e18, 1e19, -math.inf)
_INVALID_ENTITIES: tuple[list[tuple[str, str | None]], ...] = (
    [],
    [("", "a")],
    [("group", "a")],
    [("USER", "a")],
    [("user", "")],
    [("client-id", "")],
    [("user", "a"), ("user", "twice")],
    [("user", "twice"), ("user", "twice")],
    [("user", "a"), ("ip", "1.2.3.4")],
    [("client-id", "a"), ("ip", None)],
    [("user", "a"), ("group", "g")],
)
_INVALID_FILTERS: dict[str, tuple[tuple[str, int, str | None], ...]] = {
    "empty type": (("", EXACT, "a"),),
    "unknown type": (("group", EXACT, "a"),),
    "unknown type, and a known one": (("user", EXACT, "a"), ("group", SPECIFIED, None)),
    "a type twice": (("user", EXACT, "a"), ("user", DEFAULT, None)),
    "exact without a name": (("user", EXACT, None),),
    "exact and empty": (("user", EXACT, ""),),
    "default with a name": (("user", DEFAULT, "a"),),
    "specified with a name": (("user", SPECIFIED, "a"),),
    "match type 3": (("user", 3, None),),
    "match type -1": (("user", -1, None),),
    "ip and user": (("ip", SPECIFIED, None), ("user", EXACT, "a")),
    "ip and client-id": (("client-id", DEFAULT, None), ("ip", EXACT, "1.2.3.4")),
}


def entry(entity: Entity, limits: dict[str, float | None] | dict[str, float]) -> EntryData:
    """Limits to set; the limit None removes one."""
    ops = [OpData(key=key, value=limit or 0.0, remove=limit is None) for key, limit in limits.items()]
    return EntryData(entity=_entity(entity.items()), ops=ops)


def set_quotas(talk: Talk, *entries: EntryData) -> None:
    """Change quotas, and wait until the broker applies them.

    A broker of Apache Kafka may answer with quotas that it will apply a moment later. A second change, of an entity
    without clients, is visible only after the first one is applied.
    """
    _alter_and_wait(talk, *entries)
    marker: Entity = {"client-id": "without clients"}
    before = _present(talk).get((_name(_entity(marker.items())), PRODUCE), 0.0)
    _alter_and_wait(talk, entry(marker, {PRODUCE: before + 1.0}))


def _alter_and_wait(talk: Talk, *entries: EntryData) -> None:
    response = talk.quietly(_altering(*entries), 1)
    assert all(answer.error_code == 0 for answer in response.entries), response
    wanted = {(_name(e.entity), op.key): None if op.remove else op.value for e in entries for op in e.ops}
    talk.until(lambda: all(_present(talk).get(key) == limit for key, limit in wanted.items()), "the quotas")


def remove_all_quotas(talk: Talk) -> None:
    found = talk.quietly(_describing(), 1).entries
    removing = [
        EntryData(
            entity=[EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in each.entity],
            ops=[OpData(key=value.key, remove=True) for value in each.values],
        )
        for each in found
    ]
    talk.quietly(_altering(*removing), 1)
    talk.until(lambda: not _present(talk), "no quotas")


def _present(talk: Talk) -> dict[tuple[object, str], float]:
    entries = talk.quietly(_describing(), 1).entries
    return {(_name(each.entity), value.key): value.value for each in entries for value in each.values}


def _name(parts: Iterable[Any]) -> object:
    return frozenset((part.entity_type, part.entity_name) for part in parts)


def _entity(parts: Iterable[tuple[str, str | None]]) -> list[EntityData]:
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in parts]


def _key_of(entity: Entity) -> str:
    return CONNECTIONS if "ip" in entity else PRODUCE


def _altering(*entries: EntryData, check: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries), validate_only=check)


def _describing(*components: ComponentData, strict: bool = False) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(components=list(components), strict=strict)


SCENARIOS = (alter_client_quotas, describe_client_quotas)
