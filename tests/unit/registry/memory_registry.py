"""A registry in memory with the client's interface, for tests of serializers and columns."""

from __future__ import annotations

from typing import Any

from barnabas.registry import RegisteredSchema, RegistryError, Schema
from barnabas.registry.errors import Code


class MemoryRegistry:
    """Assigns the next id to every new schema, and does not check compatibility."""

    def __init__(self) -> None:
        self.registered: list[RegisteredSchema] = []

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        versions = [one for one in self.registered if one.subject == subject]
        for one in versions:
            if one.schema == schema:
                return one
        made = RegisteredSchema(subject, len(versions) + 1, len(self.registered) + 1, schema)
        self.registered.append(made)
        return made

    look_up = register

    def latest(self, subject: str) -> RegisteredSchema:
        for one in reversed(self.registered):
            if one.subject == subject:
                return one
        raise RegistryError(Code.SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")

    def version(self, subject: str, version: int, *, deleted: bool = False) -> RegisteredSchema:
        return next(one for one in self.registered if one.subject == subject and one.version == version)

    def schema(self, schema_id: int, *, subject: str = "") -> Schema:
        if not 0 < schema_id <= len(self.registered):
            raise RegistryError(Code.SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
        return self.registered[schema_id - 1].schema

    def dependencies(self, schema: Schema) -> dict[str, Schema]:
        found: dict[str, Schema] = {}
        for reference in schema.references:
            target = self.version(reference.subject, reference.version).schema
            found |= {**self.dependencies(target), reference.name: target}
        return found


def memory_registry() -> Any:
    """The return type is Any, because the object replaces a RegistryClient."""
    return MemoryRegistry()
