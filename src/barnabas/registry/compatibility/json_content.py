"""Machine: the content models of JSON objects and arrays.

A model is *open* when it takes members that it does not name, *closed* when it refuses them, *partially open* when it
takes those that fit a schema. Naming a new member narrows an open model (it accepted anything there), and removing one
from a closed model refuses what was accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from barnabas.registry.formats.json_nodes import Kind, Node
from barnabas.registry.values import Incompatibility

Compare = Callable[[Node, Node, str], list[Incompatibility]]


def compare_objects(compare: Compare, old: Node, new: Node, path: str) -> list[Incompatibility]:
    problems = _required(old, new, path)
    for name in sorted({*old.properties, *new.properties}):
        place = f"{path}/properties/{name}"
        before, after = old.properties.get(name), new.properties.get(name)
        if before is not None and after is not None:
            problems += compare(before, after, place)
        elif before is not None:
            problems += _removed(compare, before, rest_of_object(new, name), place, "PROPERTY")
        elif after is not None:
            problems += _property_added(compare, old, new, name, after, place)
    problems += _patterns(compare, old, new, path)
    problems += _dependencies(compare, old, new, path)
    before, after = _additional(old), _additional(new)
    problems += _rest(compare, before, after, f"{path}/additionalProperties", "ADDITIONAL_PROPERTIES")
    problems += _size(old, new, path, "Properties", "PROPERTIES")
    problems += _opaque(old, new, path, ("propertyNames",))
    return problems


def compare_arrays(compare: Compare, old: Node, new: Node, path: str) -> list[Incompatibility]:
    problems: list[Incompatibility] = []
    before, after = _tuple(old), _tuple(new)
    for index in range(max(len(before), len(after))):
        place = f"{path}/items/{index}"
        if index < len(before) and index < len(after):
            problems += compare(before[index], after[index], place)
        elif index < len(before):
            problems += _removed(compare, before[index], _items_rest(new), place, "ITEM")
        else:
            problems += _item_added(compare, _items_rest(old), after[index], place)
    problems += _rest(compare, _items_rest(old), _items_rest(new), f"{path}/additionalItems", "ADDITIONAL_ITEMS")
    problems += _size(old, new, path, "Items", "ITEMS")
    if new.document.get("uniqueItems") and not old.document.get("uniqueItems"):
        problems.append(_problem("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems", "items must now differ"))
    problems += _size(old, new, path, "Contains", "CONTAINS")
    problems += _opaque(old, new, path, ("contains",))
    return problems


# -- what is not named


def rest_of_object(node: Node, name: str) -> Node:
    """What a property that is not named must be."""
    for pattern, schema in node.patterns.items():
        if re.search(pattern, name):
            return schema
    return _additional(node)


def _additional(node: Node) -> Node:
    for key in ("additionalProperties", "unevaluatedProperties"):
        found = node.child_at(key)
        if found is not None:
            return found
    return Node(Kind.EMPTY, {}, node.scope)


def _is_open(node: Node) -> bool:
    return not node.patterns and _additional(node).kind is Kind.EMPTY


def _tuple(node: Node) -> list[Node]:
    listed = node.document.get("prefixItems", node.document.get("items"))
    return [node.child(one) for one in listed] if isinstance(listed, list) else []


def _items_rest(node: Node) -> Node:
    """What items behind the listed ones must be; all of them where none are listed."""
    document = node.document
    first = "items" if isinstance(document.get("items"), (dict, bool)) else "additionalItems"
    for key in (first, "unevaluatedItems"):
        found = node.child_at(key)
        if found is not None:
            return found
    return Node(Kind.EMPTY, {}, node.scope)


def _rest(compare: Compare, old: Node, new: Node, path: str, code: str) -> list[Incompatibility]:
    if new.kind is Kind.EMPTY or old.kind is Kind.NOTHING:
        return []
    if new.kind is Kind.NOTHING:
        return [_problem(f"{code}_REMOVED", path, "what is not named is now refused")]
    if old.kind is Kind.EMPTY:
        return [_problem(f"{code}_NARROWED", path, "what is not named must now fit a schema")]
    return compare(old, new, path)


# -- members that came or went


def _removed(compare: Compare, before: Node, rest: Node, path: str, code: str) -> list[Incompatibility]:
    """A named member is gone: what it accepted must fit what is now asked of the rest."""
    if rest.kind is Kind.EMPTY or before.kind is Kind.NOTHING:
        return []
    if rest.kind is Kind.NOTHING:
        message = "it is no longer named, and what is not named is refused"
        return [_problem(f"{code}_REMOVED_FROM_CLOSED_CONTENT_MODEL", path, message)]
    problems = compare(before, rest, path)
    if problems:
        message = "it is no longer named, and does not fit the schema for what is not named"
        problems.append(_problem(f"{code}_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path, message))
    return problems


def _property_added(compare: Compare, old: Node, new: Node, name: str, after: Node, path: str) -> list[Incompatibility]:
    rest = rest_of_object(old, name)
    if _is_open(old):
        if after.kind is Kind.EMPTY:
            return []
        message = "it was not named, so anything was accepted there, and now is restricted"
        return [_problem("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", path, message)]
    problems: list[Incompatibility] = []
    if rest.kind is not Kind.NOTHING:
        problems = compare(rest, after, path)
        if problems:
            message = "what was accepted there does not fit its schema"
            problems.append(_problem("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path, message))
    if name in _required_names(new) and not after.has_default:
        message = "it is required, has no default, and could not be there before"
        problems.append(_problem("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path, message))
    return problems


def _item_added(compare: Compare, rest: Node, after: Node, path: str) -> list[Incompatibility]:
    if rest.kind is Kind.NOTHING or after.kind is Kind.EMPTY:
        return []
    if rest.kind is Kind.EMPTY:
        return [_problem("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", path, "anything was accepted there")]
    problems = compare(rest, after, path)
    if problems:
        message = "what was accepted there does not fit its schema"
        problems.append(_problem("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path, message))
    return problems


# -- the rest of the keywords


def _required_names(node: Node) -> list[str]:
    required = node.document.get("required", [])
    return required if isinstance(required, list) else []


def _required(old: Node, new: Node, path: str) -> list[Incompatibility]:
    """Of properties known before and now; new ones are `_property_added`'s, unknown ones any change's."""
    problems = []
    for name in sorted(set(_required_names(new)) - set(_required_names(old))):
        schema = new.properties.get(name)
        if (schema is None) != (name not in old.properties):
            continue
        if schema is None or not schema.has_default:
            problems.append(_problem("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}", "it is now required"))
    return problems


def _patterns(compare: Compare, old: Node, new: Node, path: str) -> list[Incompatibility]:
    problems: list[Incompatibility] = []
    for pattern, after in new.patterns.items():
        before = old.patterns.get(pattern) or _additional(old)
        found = compare(before, after, f"{path}/patternProperties/{pattern}")
        if before.kind is Kind.EMPTY and found:
            message = "properties of that name were not restricted before"
            found = [_problem("PATTERN_PROPERTY_ADDED", f"{path}/patternProperties/{pattern}", message)]
        problems += found
    return problems


def _dependencies(compare: Compare, old: Node, new: Node, path: str) -> list[Incompatibility]:
    problems: list[Incompatibility] = []
    lists_before, schemas_before = _split_dependencies(old)
    lists_after, schemas_after = _split_dependencies(new)
    for name, after in sorted(lists_after.items()):
        place = f"{path}/dependencies/{name}"
        before = lists_before.get(name)
        if before is None:
            problems.append(_problem("DEPENDENCY_ARRAY_ADDED", place, f"it now needs {', '.join(after)}"))
        elif not set(after) <= set(before):
            kind = "DEPENDENCY_ARRAY_EXTENDED" if set(before) < set(after) else "DEPENDENCY_ARRAY_CHANGED"
            problems.append(_problem(kind, place, "it now needs other properties"))
    for name, schema in sorted(schemas_after.items()):
        place = f"{path}/dependencies/{name}"
        if name not in schemas_before:
            problems.append(_problem("DEPENDENCY_SCHEMA_ADDED", place, "it now brings a schema"))
        else:
            problems += compare(old.child(schemas_before[name]), new.child(schema), place)
    return problems


def _split_dependencies(node: Node) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Draft 7's `dependencies`, and the two keywords that took its place."""
    document = node.document
    mixed = document.get("dependencies", {})
    lists = {name: value for name, value in mixed.items() if isinstance(value, list)}
    schemas = {name: value for name, value in mixed.items() if not isinstance(value, list)}
    return {**lists, **document.get("dependentRequired", {})}, {**schemas, **document.get("dependentSchemas", {})}


def _size(old: Node, new: Node, path: str, suffix: str, code: str) -> list[Incompatibility]:
    problems = []
    for prefix, upper in (("max", True), ("min", False)):
        key = f"{prefix}{suffix}"
        before, after = old.document.get(key), new.document.get(key)
        if after is None or before == after:
            continue
        kind = f"{prefix.upper()}_{code}"
        if before is None:
            problems.append(_problem(f"{kind}_ADDED", f"{path}/{key}", f"{key} {after} is new"))
        elif (after < before) is upper:
            change = "DECREASED" if upper else "INCREASED"
            problems.append(_problem(f"{kind}_{change}", f"{path}/{key}", f"{key} went from {before} to {after}"))
    return problems


def _opaque(old: Node, new: Node, path: str, keys: tuple[str, ...]) -> list[Incompatibility]:
    """Keywords whose changes are not looked into: gone or the same is safe, anything else is not."""
    return [
        _problem(f"{_snake(key)}_CHANGED", f"{path}/{key}", f"{key} is new or changed, which cannot be compared")
        for key in keys
        if key in new.document and new.document[key] != old.document.get(key)
    ]


def _snake(name: str) -> str:
    return re.sub(r"([A-Z])", r"_\1", name).upper()


def _problem(kind: str, path: str, message: str) -> Incompatibility:
    return Incompatibility(kind, path, message)
