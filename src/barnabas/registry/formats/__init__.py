"""Codec: schema texts as parsed schemas, whatever their type. The types' libraries are imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.values import Incompatibility, Reference, Schema, SchemaType

Lookup = Callable[[Reference], Schema]
"""Finds what a reference refers to, or raises InvalidSchemaError."""
DEPENDENCIES_MAX = 1_000
"""So many schemas may hang together; more is a mistake or an attack."""


@runtime_checkable
class Parsed(Protocol):
    """A schema that has been understood."""

    @property
    def name(self) -> str | None:
        """The name of the record or message, where the schema has one."""

    @property
    def canonical(self) -> str:
        """The text that is stored, and by which two schemas are told to be the same."""

    @property
    def normalized(self) -> str:
        """The canonical text with what does not matter put in order (`normalize=true`)."""

    def formatted(self, name: str) -> str:
        """The text in another format (`format=...`); the canonical text for "" and for formats it does not have."""

    def read_problems(self, writer: Parsed) -> list[Incompatibility]:
        """Why a reader with this schema cannot read what was written with `writer`; empty when it can."""


def parse(schema: Schema, lookup: Lookup, *, strict: bool = True) -> Parsed:
    """Understand a schema and what it refers to. Raises InvalidSchemaError.

    With `strict` everything is checked (defaults against their types, for example); what is stored already is parsed
    without, because it has been accepted.
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
    """Everything that the schema refers to, directly or not, by name; what others need comes first."""
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
