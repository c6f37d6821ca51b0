"""Codec: parses schema texts of all types. The libraries that a type needs are imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.values import Incompatibility, Reference, Schema, SchemaType

Lookup = Callable[[Reference], Schema]
"""Finds the schema to which a reference refers, or raises InvalidSchemaError."""
DEPENDENCIES_MAX = 1_000
"""The maximum number of direct and indirect references; more are a mistake or an attack."""


@runtime_checkable
class Parsed(Protocol):
    """A parsed schema."""

    @property
    def name(self) -> str | None:
        """The name of the record or message, if the schema has one."""

    @property
    def canonical(self) -> str:
        """The text that is stored. Two schemas are the same if their canonical texts are equal."""

    @property
    def normalized(self) -> str:
        """The text that is stored with `normalize=true`: the canonical text, in which parts whose order has no meaning
        are sorted.
        """

    def formatted(self, name: str) -> str:
        """The text in the format that `format=...` names; the canonical text for "" and for unknown formats."""

    def read_problems(self, writer: Parsed) -> list[Incompatibility]:
        """The reasons why a reader with this schema cannot read data written with `writer`; empty if there are none."""


def parse(schema: Schema, lookup: Lookup, *, strict: bool = True) -> Parsed:
    """Parse a schema and the schemas to which it refers. Raises InvalidSchemaError.

    With `strict`, everything is checked (for example defaults against their types). Stored schemas are parsed without
    `strict`, because a registry has accepted them before.
    """
    dependencies = resolve_references(schema, lookup)
    match schema.type:
        case SchemaType.AVRO:
            from barnabas.registry.formats.avro import parse_avro

            return parse_avro(schema.text, [d.text for d in dependencies.values()], strict=strict)
        case SchemaType.JSON:
            from barnabas.registry.formats.json_schema import parse_json_schema

            return parse_json_schema(schema.text, {name: d.text for name, d in dependencies.items()}, strict=strict)
        case SchemaType.PROTOBUF:
            from barnabas.registry.formats.protobuf import parse_protobuf

            return parse_protobuf(schema.text, {name: d.text for name, d in dependencies.items()})


def resolve_references(schema: Schema, lookup: Lookup) -> Mapping[str, Schema]:
    """All schemas to which a schema refers, directly or indirectly, by reference name. Each comes after its own
    references.
    """
    found: dict[str, Schema] = {}
    under_way: set[str] = set()

    def visit(references: tuple[Reference, ...]) -> None:
        for reference in references:
            if reference.name in found:
                continue
            if reference.name in under_way:
                raise InvalidSchemaError(f"The references of the schema form a circle through {reference.name!r}.")
            if len(found) + len(under_way) >= DEPENDENCIES_MAX:
                raise InvalidSchemaError(f"The schema refers to more than {DEPENDENCIES_MAX} others.")
            under_way.add(reference.name)
            target = lookup(reference)
            if target.type is not schema.type:
                raise InvalidSchemaError(
                    f"The {schema.type.value} schema refers to {reference.name!r}, which is {target.type.value}."
                )
            visit(target.references)
            under_way.discard(reference.name)
            found[reference.name] = target

    visit(schema.references)
    return found
