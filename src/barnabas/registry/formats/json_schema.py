"""Codec: parses JSON Schemas, checks them against the meta-schema of their draft, and writes canonical text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from barnabas.registry.compatibility.json_schema import read_problems
from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.formats.json_nodes import JsonSchemaDocuments, JsonSchemaNode, Scope, collect_documents
from barnabas.registry.values import Incompatibility


def parse_json_schema(text: str, references: Mapping[str, str] | None = None, *, strict: bool = True) -> JsonSchema:
    """Parse a schema. `references` are the texts of other schemas by the name that `$ref` uses. Raises
    InvalidSchemaError.
    """
    document = _load(text, "The JSON Schema")
    others = {name: _load(other, f"The reference {name!r}") for name, other in (references or {}).items()}
    if strict:
        _check_against_draft(document)
    documents, base = collect_documents(document, others)
    schema = JsonSchema(document, others, documents, base)
    try:
        _ = schema.root
    except RecursionError:
        raise InvalidSchemaError("The JSON Schema is nested too deeply.") from None
    return schema


@dataclass
class JsonSchema:
    """A parsed JSON Schema with the documents to which it refers."""

    document: Any
    references: dict[str, Any]
    documents: JsonSchemaDocuments
    base: str

    @cached_property
    def root(self) -> JsonSchemaNode:
        return Scope(self.documents, self.base).load(self.document)

    @property
    def name(self) -> str | None:
        title = self.document.get("title") if isinstance(self.document, dict) else None
        return title if isinstance(title, str) else None

    @cached_property
    def canonical(self) -> str:
        return json.dumps(self.document, separators=(",", ":"), ensure_ascii=False)

    @cached_property
    def normalized(self) -> str:
        return json.dumps(self.document, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

    def formatted(self, name: str) -> str:
        return self.canonical

    def read_problems(self, writer: Any) -> list[Incompatibility]:
        return read_problems(self.root, writer.root)


def _load(text: str, what: str) -> Any:
    try:
        document = json.loads(text)
    except RecursionError:
        raise InvalidSchemaError(f"{what} is nested too deeply.") from None
    except ValueError as error:
        raise InvalidSchemaError(f"{what} is not JSON: {error}") from error
    if not isinstance(document, (dict, bool)):
        raise InvalidSchemaError(f"{what} must be an object or a boolean, not {type(document).__name__}.")
    return document


def _check_against_draft(document: Any) -> None:
    """Check against the meta-schema that `$schema` names, or draft 7 if there is none, as other registries do."""
    from jsonschema import Draft7Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    validator = validator_for(document, default=Draft7Validator)
    try:
        validator.check_schema(document)
    except SchemaError as error:
        place = "/".join(map(str, error.absolute_path)) or "the root"
        raise InvalidSchemaError(f"The JSON Schema is not valid at {place}: {error.message}") from error
