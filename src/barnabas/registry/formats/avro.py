"""Codec: parses Avro schemas into typed nodes, and writes nodes as the canonical text, which is that of Java's
`Schema.toString`.

Equivalent texts (attributes in another order, `{"type": "string"}` for `"string"`, a namespace in the name) have the
same canonical text. The rules are those of the Avro 1.12 specification.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from barnabas.registry.compatibility.avro import read_problems
from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.formats.avro_defaults import default_problem
from barnabas.registry.formats.avro_nodes import (
    MISSING,
    PRIMITIVES,
    ArrayType,
    AvroField,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    NamedType,
    Primitive,
    RecordType,
    UnionType,
)
from barnabas.registry.values import Incompatibility

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ORDERS: Final = ("ascending", "descending", "ignore")
_DEPTH_MAX: Final = 200
_RESERVED: Final = {
    "record": {"type", "name", "namespace", "doc", "fields", "aliases"},
    "enum": {"type", "name", "namespace", "doc", "symbols", "default", "aliases"},
    "fixed": {"type", "name", "namespace", "doc", "size", "aliases"},
    "array": {"type", "items"},
    "map": {"type", "values"},
    "field": {"name", "type", "doc", "default", "order", "aliases"},
}


def parse_avro(text: str, dependencies: Sequence[str] = (), *, strict: bool = True) -> AvroSchema:
    """Parse a schema. `dependencies` are the texts of the schemas whose types the schema may name; they are parsed
    first. Raises InvalidSchemaError with the reason and the path.
    """
    parser = _AvroParser(strict)
    for dependency in dependencies:
        parser.parse_text(dependency)
    borrowed = frozenset(parser.names)
    root = parser.parse_text(text)
    return AvroSchema(root, borrowed)


@dataclass
class AvroSchema:
    """A parsed Avro schema. `borrowed` are the named types of its references, which are not written out."""

    root: AvroType
    borrowed: frozenset[str] = frozenset()

    @property
    def name(self) -> str | None:
        return self.root.fullname if isinstance(self.root, NamedType) else None

    @cached_property
    def canonical(self) -> str:
        return _dump(_Writer(self.borrowed).write(self.root, ""))

    @cached_property
    def normalized(self) -> str:
        return _dump(_Writer(self.borrowed, sort=True).write(self.root, ""))

    @cached_property
    def resolved(self) -> str:
        """The text with the types of all references written out."""
        return _dump(_Writer(frozenset()).write(self.root, ""))

    def formatted(self, name: str) -> str:
        return self.resolved if name == "resolved" else self.canonical

    def read_problems(self, writer: Any) -> list[Incompatibility]:
        return read_problems(self.root, writer.root)


@dataclass
class _AvroParser:
    strict: bool
    names: dict[str, NamedType] = field(default_factory=dict)
    depth: int = 0

    def parse_text(self, text: str) -> AvroType:
        try:
            document = json.loads(text, object_pairs_hook=_no_duplicates)
        except RecursionError:
            raise InvalidSchemaError("The Avro schema is nested too deeply.") from None
        except ValueError as error:
            stripped = text.strip()
            if stripped not in PRIMITIVES:  # some clients send the bare name of a primitive type
                raise InvalidSchemaError(f"The Avro schema is not JSON: {error}") from error
            document = stripped
        return self.parse(document, "", "/")

    def parse(self, document: Any, namespace: str, path: str) -> AvroType:
        self.depth += 1
        if self.depth > _DEPTH_MAX:
            raise InvalidSchemaError(f"The Avro schema is nested more than {_DEPTH_MAX} deep.")
        try:
            if isinstance(document, str):
                return self._named(document, namespace, path)
            if isinstance(document, list):
                return self._union(document, namespace, path)
            if isinstance(document, dict):
                return self._object(document, namespace, path)
        finally:
            self.depth -= 1
        raise InvalidSchemaError(f"At {path}: {document!r} is not a schema; expected a name, an object or a list.")

    def _named(self, name: str, namespace: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        for candidate in (name,) if "." in name or not namespace else (f"{namespace}.{name}", name):
            if candidate in self.names:
                return self.names[candidate]
        raise InvalidSchemaError(
            f"At {path}: the type {name!r} is not defined (earlier in the schema, or in a reference)."
        )

    def _union(self, branches: list[Any], namespace: str, path: str) -> UnionType:
        union = UnionType([self.parse(branch, namespace, f"{path}{i}/") for i, branch in enumerate(branches)])
        seen: set[str] = set()
        for branch in union.branches:
            if isinstance(branch, UnionType):
                raise InvalidSchemaError(f"At {path}: a union must not contain a union.")
            if branch.label in seen:
                raise InvalidSchemaError(f"At {path}: the union has {branch.label} twice.")
            seen.add(branch.label)
        return union

    def _object(self, document: dict[str, Any], namespace: str, path: str) -> AvroType:
        kind = document.get("type")
        if kind is None:
            raise InvalidSchemaError(f"At {path}: the schema has no 'type'.")
        if isinstance(kind, (dict, list)):
            return self.parse(kind, namespace, path)
        match kind:
            case "record" | "error":
                return self._record(document, namespace, path)
            case "enum":
                return self._enum(document, namespace, path)
            case "fixed":
                return self._fixed(document, namespace, path)
            case "array":
                items = self.parse(_require_key(document, "items", path), namespace, f"{path}items/")
                return ArrayType(items, _props(document, "array"))
            case "map":
                values = self.parse(_require_key(document, "values", path), namespace, f"{path}values/")
                return MapType(values, _props(document, "map"))
        if kind in PRIMITIVES:
            return Primitive(kind, {k: v for k, v in document.items() if k != "type"})
        if not isinstance(kind, str):
            raise InvalidSchemaError(f"At {path}: {kind!r} is not a type.")
        return self._named(kind, namespace, path)

    def _names_of(self, document: dict[str, Any], namespace: str, path: str) -> tuple[str, str, list[str]]:
        """(namespace, name, full names of the aliases) of a named type."""
        name = _require_key(document, "name", path)
        if not isinstance(name, str):
            raise InvalidSchemaError(f"At {path}: the name {name!r} is not a string.")
        if "." in name:
            space, _, name = name.rpartition(".")
        else:
            space = document.get("namespace", namespace) or ""
        if not isinstance(space, str):
            raise InvalidSchemaError(f"At {path}: the namespace {space!r} is not a string.")
        for part in (*filter(None, space.split(".")), name):
            _check_name(part, path)
        if name in PRIMITIVES and not space:
            raise InvalidSchemaError(f"At {path}: {name!r} is the name of a primitive type.")
        aliases = _texts(document.get("aliases", []), f"{path}aliases")
        return space, name, [alias if "." in alias or not space else f"{space}.{alias}" for alias in aliases]

    def _define(self, named: NamedType, path: str) -> None:
        if named.fullname in self.names:
            raise InvalidSchemaError(f"At {path}: the type {named.fullname!r} is defined twice.")
        self.names[named.fullname] = named

    def _record(self, document: dict[str, Any], namespace: str, path: str) -> RecordType:
        space, name, aliases = self._names_of(document, namespace, path)
        record = RecordType(space, name, aliases, _doc(document), _props(document, "record"), str(document["type"]))
        self._define(record, path)
        fields = _require_key(document, "fields", path)
        if not isinstance(fields, list):
            raise InvalidSchemaError(f"At {path}: 'fields' of {record.fullname} must be a list.")
        names: set[str] = set()
        for index, entry in enumerate(fields):
            one = self._field(entry, space, f"{path}fields/{index}/")
            if one.name in names:
                raise InvalidSchemaError(f"At {path}: {record.fullname} has the field {one.name!r} twice.")
            names.add(one.name)
            record.fields.append(one)
        return record

    def _field(self, entry: Any, namespace: str, path: str) -> AvroField:
        if not isinstance(entry, dict):
            raise InvalidSchemaError(f"At {path}: {entry!r} is not a field.")
        name = _require_key(entry, "name", path)
        _check_name(name, path)
        kind = self.parse(_require_key(entry, "type", path), namespace, f"{path}type/")
        default = entry.get("default", MISSING)
        order = entry.get("order", "ascending")
        if order not in _ORDERS:
            raise InvalidSchemaError(f"At {path}: the order {order!r} is none of {', '.join(_ORDERS)}.")
        if self.strict and default is not MISSING:
            problem = default_problem(kind, default)
            if problem is not None:
                raise InvalidSchemaError(f"At {path}: the default of field {name!r} does not fit its type: {problem}.")
        aliases = _texts(entry.get("aliases", []), f"{path}aliases")
        return AvroField(name, kind, default, aliases, _doc(entry), order, _props(entry, "field"))

    def _enum(self, document: dict[str, Any], namespace: str, path: str) -> EnumType:
        space, name, aliases = self._names_of(document, namespace, path)
        symbols = _texts(_require_key(document, "symbols", path), f"{path}symbols")
        for symbol in symbols:
            _check_name(symbol, f"{path}symbols")
        if len(set(symbols)) != len(symbols):
            raise InvalidSchemaError(f"At {path}: the enum {name} has a symbol twice.")
        default = document.get("default")
        if default is not None and default not in symbols:
            raise InvalidSchemaError(f"At {path}: the default {default!r} of enum {name} is not one of its symbols.")
        enum = EnumType(space, name, aliases, _doc(document), _props(document, "enum"), symbols, default)
        self._define(enum, path)
        return enum

    def _fixed(self, document: dict[str, Any], namespace: str, path: str) -> FixedType:
        space, name, aliases = self._names_of(document, namespace, path)
        size = _require_key(document, "size", path)
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise InvalidSchemaError(f"At {path}: the size {size!r} of fixed {name} is not a number of bytes.")
        fixed = FixedType(space, name, aliases, _doc(document), _props(document, "fixed"), size)
        self._define(fixed, path)
        return fixed


class _Writer:
    """Converts nodes to JSON: attributes in Java's order, each named type written out at its first use."""

    def __init__(self, known: frozenset[str], *, sort: bool = False) -> None:
        self._known = set(known)
        self._props: Callable[[dict[str, Any]], dict[str, Any]] = _sorted if sort else dict

    def write(self, node: AvroType, namespace: str) -> Any:
        match node:
            case Primitive():
                return {"type": node.name, **self._props(node.props)} if node.props else node.name
            case ArrayType():
                return {"type": "array", "items": self.write(node.items, namespace), **self._props(node.props)}
            case MapType():
                return {"type": "map", "values": self.write(node.values, namespace), **self._props(node.props)}
            case UnionType():
                return [self.write(branch, namespace) for branch in node.branches]
            case NamedType():
                return self._named(node, namespace)
        raise AssertionError(node)

    def _named(self, node: NamedType, namespace: str) -> Any:
        if node.fullname in self._known:
            return node.name if node.namespace == namespace else node.fullname
        self._known.add(node.fullname)
        head: dict[str, Any] = {"type": node.kind, "name": node.name}
        if node.namespace != namespace:
            head["namespace"] = node.namespace
        if node.doc is not None:
            head["doc"] = node.doc
        match node:
            case RecordType():
                head["fields"] = [self._field(one, node.namespace) for one in node.fields]
            case EnumType():
                head["symbols"] = node.symbols
                if node.default is not None:
                    head["default"] = node.default
            case FixedType():
                head["size"] = node.size
        head.update(self._props(node.props))
        if node.aliases:
            head["aliases"] = [_relative(alias, node.namespace) for alias in node.aliases]
        return head

    def _field(self, one: AvroField, namespace: str) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": one.name, "type": self.write(one.type, namespace)}
        if one.doc is not None:
            entry["doc"] = one.doc
        if one.default is not MISSING:
            entry["default"] = one.default
        if one.order != "ascending":
            entry["order"] = one.order
        if one.aliases:
            entry["aliases"] = one.aliases
        entry.update(self._props(one.props))
        return entry


def _dump(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _sorted(props: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(props.items()))


def _relative(alias: str, namespace: str) -> str:
    space, _, name = alias.rpartition(".")
    return name if space == namespace else alias


def _require_key(document: dict[str, Any], key: str, path: str) -> Any:
    try:
        return document[key]
    except KeyError:
        raise InvalidSchemaError(f"At {path}: '{key}' is missing.") from None


def _check_name(name: Any, path: str) -> None:
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidSchemaError(f"At {path}: {name!r} is not a name (letters, digits and _, not a digit first).")


def _texts(values: Any, path: str) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InvalidSchemaError(f"At {path}: expected a list of strings.")
    return values


def _doc(document: dict[str, Any]) -> str | None:
    doc = document.get("doc")
    return None if doc is None else str(doc)


def _props(document: dict[str, Any], kind: str) -> dict[str, Any]:
    reserved = _RESERVED[kind]
    return {key: value for key, value in document.items() if key not in reserved}


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        repeated = next(_repeated(key for key, _ in pairs))
        raise InvalidSchemaError(f"The Avro schema has the attribute {repeated!r} twice in one object.")
    return document


def _repeated(keys: Iterator[str]) -> Iterator[str]:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            yield key
        seen.add(key)
