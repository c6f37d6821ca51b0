"""Codec: converts a JSON Schema into nodes of one kind each, the form that the compatibility rules compare.

A document such as `{"type": "object", "properties": ..., "anyOf": [...]}` has two restrictions and becomes a node of
kind ALL with one branch for each. `{"type": ["string", "null"]}` becomes ANY of two branches. A `$ref` is replaced by
its target. `{}` is EMPTY (every value is valid), and `false` is NOTHING. All drafts from 4 to 2020-12 use these nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from barnabas.registry.errors import InvalidSchemaError

_REF_HOPS_MAX: Final = 100
_KEYWORDS: Final = {
    "object": (
        "properties", "required", "additionalProperties", "minProperties", "maxProperties", "dependencies",
        "dependentRequired", "dependentSchemas", "patternProperties", "propertyNames", "unevaluatedProperties",
    ),
    "array": (
        "items", "additionalItems", "prefixItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems",
        "contains", "minContains", "maxContains",
    ),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}  # fmt: skip
"""If a document names no type, the types that it restricts follow from its keywords."""


class JsonSchemaKind(Enum):
    """The restriction that a node expresses."""

    EMPTY = "empty"
    NOTHING = "false"
    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NULL = "null"
    OBJECT = "object"
    ARRAY = "array"
    ENUM = "enum"
    CONST = "const"
    NOT = "not"
    CONDITION = "if"
    ALL = "allOf"
    ANY = "anyOf"
    ONE = "oneOf"

    @property
    def combined(self) -> bool:
        return self in (JsonSchemaKind.ALL, JsonSchemaKind.ANY, JsonSchemaKind.ONE)


@dataclass(eq=False)
class JsonSchemaNode:
    """One restriction. `document` is the JSON object from which the node was read."""

    kind: JsonSchemaKind
    document: Mapping[str, Any]
    scope: Scope
    branches: list[JsonSchemaNode] = field(default_factory=list)
    integer: bool = False

    def child(self, document: Any) -> JsonSchemaNode:
        """Convert `document`, a JSON subschema of this node's schema, to its node."""
        return self.scope.load(document)

    def child_at(self, key: str) -> JsonSchemaNode | None:
        return self.child(self.document[key]) if key in self.document else None

    @property
    def has_default(self) -> bool:
        return "default" in self.document

    @cached_property
    def properties(self) -> dict[str, JsonSchemaNode]:
        return {name: self.child(value) for name, value in self.document.get("properties", {}).items()}

    @cached_property
    def patterns(self) -> dict[str, JsonSchemaNode]:
        return {pattern: self.child(value) for pattern, value in self.document.get("patternProperties", {}).items()}


@dataclass
class JsonSchemaDocuments:
    """The schema's document and the documents to which it refers, by URI."""

    documents: dict[str, Any]
    nodes: dict[int, JsonSchemaNode] = field(default_factory=dict)

    def find(self, uri: str) -> tuple[Any, str]:
        """Return the target of a resolved reference, and the base URI of references inside the target."""
        base, fragment = urldefrag(uri)
        document = self.documents.get(base)
        if document is None:
            raise InvalidSchemaError(f"The reference {uri!r} points to a document that is not among the references.")
        if not fragment:
            return document, base
        if not fragment.startswith("/"):
            for inside in _objects(document):
                if fragment in (inside.get("$anchor"), str(inside.get("$id", "")).removeprefix("#")):
                    return inside, base
            raise InvalidSchemaError(f"The reference {uri!r} points to an anchor that does not exist.")
        target = document
        for part in unquote(fragment)[1:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            try:
                target = target[int(key)] if isinstance(target, list) else target[key]
            except (KeyError, IndexError, ValueError, TypeError):
                raise InvalidSchemaError(
                    f"The reference {uri!r} points to a part of its document that does not exist."
                ) from None
            if isinstance(target, dict) and isinstance(target.get("$id"), str) and not target["$id"].startswith("#"):
                base = urljoin(base, target["$id"])
        return target, base


def collect_documents(root: Any, references: Mapping[str, Any]) -> tuple[JsonSchemaDocuments, str]:
    """The documents of a schema and its references, and the base URI of the schema itself."""
    documents = JsonSchemaDocuments(dict(references))
    for name, document in references.items():
        _add_embedded_documents(documents, document, name)
    base = root.get("$id", root.get("id", "")) if isinstance(root, dict) else ""
    base = urldefrag(base)[0] if isinstance(base, str) else ""
    documents.documents[base] = root
    documents.documents.setdefault("", root)
    _add_embedded_documents(documents, root, base)
    return documents, base


def _add_embedded_documents(documents: JsonSchemaDocuments, document: Any, base: str) -> None:
    for inside in _objects(document):
        own = inside.get("$id")
        if isinstance(own, str) and not own.startswith("#"):
            documents.documents.setdefault(urldefrag(urljoin(base, own))[0], inside)


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    todo = [document]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            yield one
            todo.extend(value for key, value in one.items() if key not in ("enum", "const", "default", "examples"))
        elif isinstance(one, list):
            todo.extend(one)


@dataclass(frozen=True)
class Scope:
    """The base URI against which relative references are resolved."""

    documents: JsonSchemaDocuments
    base: str

    def load(self, document: Any) -> JsonSchemaNode:
        """The node of a schema. The same part of a document always has the same node."""
        cache = self.documents.nodes
        known = cache.get(id(document))
        if known is None:
            known = self._load(document)
            cache[id(document)] = known
        return known

    def _load(self, document: Any) -> JsonSchemaNode:
        if document is True:
            return JsonSchemaNode(JsonSchemaKind.EMPTY, {}, self)
        if document is False:
            return JsonSchemaNode(JsonSchemaKind.NOTHING, {}, self)
        if not isinstance(document, dict):
            raise InvalidSchemaError(f"{document!r} is not a JSON Schema: expected an object or a boolean.")
        scope = self
        own = document.get("$id")
        if isinstance(own, str) and not own.startswith("#"):
            scope = Scope(self.documents, urldefrag(urljoin(self.base, own))[0])
        if isinstance(document.get("$ref"), str):
            return scope._follow(document)
        parts = list(scope._parts(document))
        if not parts:
            return JsonSchemaNode(JsonSchemaKind.EMPTY, document, scope)
        if len(parts) == 1:
            return parts[0]
        return JsonSchemaNode(JsonSchemaKind.ALL, document, scope, parts)

    def _follow(self, document: Mapping[str, Any]) -> JsonSchemaNode:
        seen = 0
        scope = self
        target: Any = document
        while isinstance(target, dict) and isinstance(target.get("$ref"), str):
            seen += 1
            if seen > _REF_HOPS_MAX:
                raise InvalidSchemaError(f"The reference {document['$ref']!r} is circular.")
            target, base = scope.documents.find(urljoin(scope.base, target["$ref"]))
            scope = Scope(scope.documents, base)
        return scope.load(target)

    def _parts(self, document: dict[str, Any]) -> Iterator[JsonSchemaNode]:
        """One node for each restriction in the document."""
        if "enum" in document:
            yield JsonSchemaNode(JsonSchemaKind.ENUM, document, self)
        for kind in (JsonSchemaKind.ALL, JsonSchemaKind.ANY, JsonSchemaKind.ONE):
            if isinstance(document.get(kind.value), list):
                yield JsonSchemaNode(kind, document, self, [self.load(branch) for branch in document[kind.value]])
        if "not" in document:
            yield JsonSchemaNode(JsonSchemaKind.NOT, document, self, [self.load(document["not"])])
        if "const" in document:
            yield JsonSchemaNode(JsonSchemaKind.CONST, document, self)
        if "if" in document:
            yield JsonSchemaNode(JsonSchemaKind.CONDITION, document, self)
        kinds = document.get("type")
        if isinstance(kinds, str):
            yield self._typed(kinds, document)
        elif isinstance(kinds, list):
            yield JsonSchemaNode(JsonSchemaKind.ANY, document, self, [self._typed(kind, document) for kind in kinds])
        else:
            for name, keywords in _KEYWORDS.items():
                if any(keyword in document for keyword in keywords):
                    yield self._typed(name, document)

    def _typed(self, kind: Any, document: dict[str, Any]) -> JsonSchemaNode:
        if kind == "integer":
            return JsonSchemaNode(JsonSchemaKind.NUMBER, document, self, integer=True)
        try:
            return JsonSchemaNode(JsonSchemaKind(kind), document, self)
        except ValueError:
            raise InvalidSchemaError(f"{kind!r} is not a JSON type.") from None
