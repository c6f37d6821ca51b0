"""Codec: JSON Schema documents as nodes of one kind each, which is what compatibility rules are written for.

A document like `{"type": "object", "properties": ..., "anyOf": [...]}` says two things; it becomes a node of kind ALL
with one node for each. `{"type": ["string", "null"]}` becomes ANY of two. `$ref` is followed, `{}` is EMPTY (everything
is valid), `false` is NOTHING. Drafts 4 to 2020-12 end in the same nodes.
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
"""What a document that names no type is about is told from its keywords."""


class Kind(Enum):
    """What a node restricts."""

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
        return self in (Kind.ALL, Kind.ANY, Kind.ONE)


@dataclass(eq=False)
class Node:
    """One restriction. `document` is the JSON object that it was read from."""

    kind: Kind
    document: Mapping[str, Any]
    scope: Scope
    branches: list[Node] = field(default_factory=list)
    integer: bool = False

    def child(self, document: Any) -> Node:
        """The node of a schema inside this one."""
        return self.scope.load(document)

    def child_at(self, key: str) -> Node | None:
        return self.child(self.document[key]) if key in self.document else None

    @property
    def has_default(self) -> bool:
        return "default" in self.document

    @cached_property
    def properties(self) -> dict[str, Node]:
        return {name: self.child(value) for name, value in self.document.get("properties", {}).items()}

    @cached_property
    def patterns(self) -> dict[str, Node]:
        return {pattern: self.child(value) for pattern, value in self.document.get("patternProperties", {}).items()}


@dataclass
class Library:
    """The document and those that it refers to, by URI."""

    documents: dict[str, Any]
    nodes: dict[int, Node] = field(default_factory=dict)

    def find(self, uri: str) -> tuple[Any, str]:
        """(what a resolved reference points to, the URI that references inside it are relative to)."""
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
                raise InvalidSchemaError(f"The reference {uri!r} points to nothing in its document.") from None
            if isinstance(target, dict) and isinstance(target.get("$id"), str) and not target["$id"].startswith("#"):
                base = urljoin(base, target["$id"])
        return target, base


def build_library(root: Any, references: Mapping[str, Any]) -> tuple[Library, str]:
    """The library of a document, and the base URI of the document itself."""
    library = Library(dict(references))
    for name, document in references.items():
        _learn_ids(library, document, name)
    base = root.get("$id", root.get("id", "")) if isinstance(root, dict) else ""
    base = urldefrag(base)[0] if isinstance(base, str) else ""
    library.documents[base] = root
    library.documents.setdefault("", root)
    _learn_ids(library, root, base)
    return library, base


def _learn_ids(library: Library, document: Any, base: str) -> None:
    for inside in _objects(document):
        own = inside.get("$id")
        if isinstance(own, str) and not own.startswith("#"):
            library.documents.setdefault(urldefrag(urljoin(base, own))[0], inside)


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
    """Where relative references start from."""

    library: Library
    base: str

    def load(self, document: Any) -> Node:
        """The node of a schema; the same one whenever the same part of a document is asked for."""
        cache = self.library.nodes
        known = cache.get(id(document))
        if known is None:
            known = self._load(document)
            cache[id(document)] = known
        return known

    def _load(self, document: Any) -> Node:
        if document is True:
            return Node(Kind.EMPTY, {}, self)
        if document is False:
            return Node(Kind.NOTHING, {}, self)
        if not isinstance(document, dict):
            raise InvalidSchemaError(f"{document!r} is not a JSON Schema: expected an object or a boolean.")
        scope = self
        own = document.get("$id")
        if isinstance(own, str) and not own.startswith("#"):
            scope = Scope(self.library, urldefrag(urljoin(self.base, own))[0])
        if isinstance(document.get("$ref"), str):
            return scope._follow(document)
        parts = list(scope._parts(document))
        if not parts:
            return Node(Kind.EMPTY, document, scope)
        if len(parts) == 1:
            return parts[0]
        return Node(Kind.ALL, document, scope, parts)

    def _follow(self, document: Mapping[str, Any]) -> Node:
        seen = 0
        scope = self
        target: Any = document
        while isinstance(target, dict) and isinstance(target.get("$ref"), str):
            seen += 1
            if seen > _REF_HOPS_MAX:
                raise InvalidSchemaError(f"The reference {document['$ref']!r} leads in a circle.")
            target, base = scope.library.find(urljoin(scope.base, target["$ref"]))
            scope = Scope(scope.library, base)
        return scope.load(target)

    def _parts(self, document: dict[str, Any]) -> Iterator[Node]:
        """One node for each thing that the document restricts."""
        if "enum" in document:
            yield Node(Kind.ENUM, document, self)
        for kind in (Kind.ALL, Kind.ANY, Kind.ONE):
            if isinstance(document.get(kind.value), list):
                yield Node(kind, document, self, [self.load(branch) for branch in document[kind.value]])
        if "not" in document:
            yield Node(Kind.NOT, document, self, [self.load(document["not"])])
        if "const" in document:
            yield Node(Kind.CONST, document, self)
        if "if" in document:
            yield Node(Kind.CONDITION, document, self)
        kinds = document.get("type")
        if isinstance(kinds, str):
            yield self._typed(kinds, document)
        elif isinstance(kinds, list):
            yield Node(Kind.ANY, document, self, [self._typed(kind, document) for kind in kinds])
        else:
            for name, keywords in _KEYWORDS.items():
                if any(keyword in document for keyword in keywords):
                    yield self._typed(name, document)

    def _typed(self, kind: Any, document: dict[str, Any]) -> Node:
        if kind == "integer":
            return Node(Kind.NUMBER, document, self, integer=True)
        try:
            return Node(Kind(kind), document, self)
        except ValueError:
            raise InvalidSchemaError(f"{kind!r} is not a type of JSON.") from None
