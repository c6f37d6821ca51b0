"""Machine: the content models of JSON objects and arrays.

A content model is *open* if it accepts members without a schema of their own, *closed* if it rejects them, and
*partially open* if it accepts those that match a schema for additional members. Adding a schema for a new member
narrows an open model, which accepted any value for that member. After the schema of a member is removed from a closed
model, the model rejects values that it accepted before.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.regex import Re2Pattern
from barnabas.registry.compatibility.effort import Effort
from barnabas.registry.formats.json_nodes import JsonSchemaKind, JsonSchemaNode
from barnabas.registry.values import Incompatibility

Compare = Callable[[JsonSchemaNode, JsonSchemaNode, str], list[Incompatibility]]


def compare_objects(
    compare: Compare, effort: Effort, old: JsonSchemaNode, new: JsonSchemaNode, path: str
) -> list[Incompatibility]:
    problems = _required(old, new, path)
    for name in sorted({*old.properties, *new.properties}):
        place = f"{path}/properties/{name}"
        before, after = old.properties.get(name), new.properties.get(name)
        effort.spend(len(old.patterns) + len(new.patterns))
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


def compare_arrays(compare: Compare, old: JsonSchemaNode, new: JsonSchemaNode, path: str) -> list[Incompatibility]:
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
        problems.append(_problem("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems", "items must now be unique"))
    problems += _size(old, new, path, "Contains", "CONTAINS")
    problems += _opaque(old, new, path, ("contains",))
    return problems


# -- additional members


def rest_of_object(node: JsonSchemaNode, name: str) -> JsonSchemaNode:
    """The schema for a property that has no schema of its own."""
    for pattern, schema in node.patterns.items():
        compiled = _compile(pattern)
        if compiled is not None and compiled.is_in(name):
            return schema
    return _additional(node)


def _compile(pattern: str) -> Re2Pattern | None:
    """The expression; None if RE2 does not know its syntax (look-around, back references). Such an expression selects
    no property here, so that the properties are compared with the schema for additional ones.
    """
    try:
        return Re2Pattern(pattern)
    except KafkaError:
        return None


def _additional(node: JsonSchemaNode) -> JsonSchemaNode:
    for key in ("additionalProperties", "unevaluatedProperties"):
        found = node.child_at(key)
        if found is not None:
            return found
    return JsonSchemaNode(JsonSchemaKind.EMPTY, {}, node.scope)


def _is_open(node: JsonSchemaNode) -> bool:
    return not node.patterns and _additional(node).kind is JsonSchemaKind.EMPTY


def _tuple(node: JsonSchemaNode) -> list[JsonSchemaNode]:
    listed = node.document.get("prefixItems", node.document.get("items"))
    return [node.child(one) for one in listed] if isinstance(listed, list) else []


def _items_rest(node: JsonSchemaNode) -> JsonSchemaNode:
    """The schema for items after those with schemas of their own; for all items if there are none."""
    document = node.document
    first = "items" if isinstance(document.get("items"), (dict, bool)) else "additionalItems"
    for key in (first, "unevaluatedItems"):
        found = node.child_at(key)
        if found is not None:
            return found
    return JsonSchemaNode(JsonSchemaKind.EMPTY, {}, node.scope)


def _rest(compare: Compare, old: JsonSchemaNode, new: JsonSchemaNode, path: str, code: str) -> list[Incompatibility]:
    if new.kind is JsonSchemaKind.EMPTY or old.kind is JsonSchemaKind.NOTHING:
        return []
    if new.kind is JsonSchemaKind.NOTHING:
        return [_problem(f"{code}_REMOVED", path, "additional members are now rejected")]
    if old.kind is JsonSchemaKind.EMPTY:
        return [_problem(f"{code}_NARROWED", path, "additional members must now match a schema")]
    return compare(old, new, path)


# -- added and removed members


def _removed(
    compare: Compare, before: JsonSchemaNode, rest: JsonSchemaNode, path: str, code: str
) -> list[Incompatibility]:
    """A member's schema was removed: values that it accepted must match the schema for additional members."""
    if rest.kind is JsonSchemaKind.EMPTY or before.kind is JsonSchemaKind.NOTHING:
        return []
    if rest.kind is JsonSchemaKind.NOTHING:
        message = "its schema was removed, and additional members are rejected"
        return [_problem(f"{code}_REMOVED_FROM_CLOSED_CONTENT_MODEL", path, message)]
    problems = compare(before, rest, path)
    if problems:
        message = "its schema was removed and does not fit the schema for additional members"
        problems.append(_problem(f"{code}_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path, message))
    return problems


def _property_added(
    compare: Compare, old: JsonSchemaNode, new: JsonSchemaNode, name: str, after: JsonSchemaNode, path: str
) -> list[Incompatibility]:
    rest = rest_of_object(old, name)
    if _is_open(old):
        if after.kind is JsonSchemaKind.EMPTY:
            return []
        message = "it had no schema and accepted any value, which is now restricted"
        return [_problem("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", path, message)]
    problems: list[Incompatibility] = []
    if rest.kind is not JsonSchemaKind.NOTHING:
        problems = compare(rest, after, path)
        if problems:
            message = "values that were accepted do not fit its schema"
            problems.append(_problem("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path, message))
    if name in _required_names(new) and not after.has_default:
        message = "it is required, has no default, and was not allowed before"
        problems.append(_problem("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path, message))
    return problems


def _item_added(compare: Compare, rest: JsonSchemaNode, after: JsonSchemaNode, path: str) -> list[Incompatibility]:
    if rest.kind is JsonSchemaKind.NOTHING or after.kind is JsonSchemaKind.EMPTY:
        return []
    if rest.kind is JsonSchemaKind.EMPTY:
        return [_problem("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", path, "any value was accepted there")]
    problems = compare(rest, after, path)
    if problems:
        message = "values that were accepted do not fit its schema"
        problems.append(_problem("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path, message))
    return problems


# -- other keywords


def _required_names(node: JsonSchemaNode) -> list[str]:
    required = node.document.get("required", [])
    return required if isinstance(required, list) else []


def _required(old: JsonSchemaNode, new: JsonSchemaNode, path: str) -> list[Incompatibility]:
    """The violations by properties that are required now and were not before, if both versions or neither have a schema
    for the property. `_property_added` checks properties whose schema is new, and `_removed` those whose schema was
    removed.
    """
    problems = []
    for name in sorted(set(_required_names(new)) - set(_required_names(old))):
        schema = new.properties.get(name)
        if (schema is None) != (name not in old.properties):
            continue
        if schema is None or not schema.has_default:
            problems.append(_problem("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}", "it is now required"))
    return problems


def _patterns(compare: Compare, old: JsonSchemaNode, new: JsonSchemaNode, path: str) -> list[Incompatibility]:
    problems: list[Incompatibility] = []
    for pattern, after in new.patterns.items():
        before = old.patterns.get(pattern) or _additional(old)
        found = compare(before, after, f"{path}/patternProperties/{pattern}")
        if before.kind is JsonSchemaKind.EMPTY and found:
            message = "properties with that name were not restricted before"
            found = [_problem("PATTERN_PROPERTY_ADDED", f"{path}/patternProperties/{pattern}", message)]
        problems += found
    return problems


def _dependencies(compare: Compare, old: JsonSchemaNode, new: JsonSchemaNode, path: str) -> list[Incompatibility]:
    problems: list[Incompatibility] = []
    lists_before, schemas_before = _split_dependencies(old)
    lists_after, schemas_after = _split_dependencies(new)
    for name, after in sorted(lists_after.items()):
        place = f"{path}/dependencies/{name}"
        before = lists_before.get(name)
        if before is None:
            problems.append(_problem("DEPENDENCY_ARRAY_ADDED", place, f"it now requires {', '.join(after)}"))
        elif not set(after) <= set(before):
            kind = "DEPENDENCY_ARRAY_EXTENDED" if set(before) < set(after) else "DEPENDENCY_ARRAY_CHANGED"
            problems.append(_problem(kind, place, "it now requires other properties"))
    for name, schema in sorted(schemas_after.items()):
        place = f"{path}/dependencies/{name}"
        if name not in schemas_before:
            problems.append(_problem("DEPENDENCY_SCHEMA_ADDED", place, "it now applies a schema"))
        else:
            problems += compare(old.child(schemas_before[name]), new.child(schema), place)
    return problems


def _split_dependencies(node: JsonSchemaNode) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Two dicts by property name: the properties that it requires, and the schema that it applies.

    Draft 7 has both in `dependencies`; later drafts have them in `dependentRequired` and `dependentSchemas`.
    """
    document = node.document
    mixed = document.get("dependencies", {})
    lists = {name: value for name, value in mixed.items() if isinstance(value, list)}
    schemas = {name: value for name, value in mixed.items() if not isinstance(value, list)}
    return {**lists, **document.get("dependentRequired", {})}, {**schemas, **document.get("dependentSchemas", {})}


def _size(old: JsonSchemaNode, new: JsonSchemaNode, path: str, suffix: str, code: str) -> list[Incompatibility]:
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


def _opaque(old: JsonSchemaNode, new: JsonSchemaNode, path: str, keys: tuple[str, ...]) -> list[Incompatibility]:
    """Compare keywords that are not analysed: a removed or equal keyword is compatible, any other change is not."""
    return [
        _problem(f"{_snake(key)}_CHANGED", f"{path}/{key}", f"{key} is new or changed, which cannot be compared")
        for key in keys
        if key in new.document and new.document[key] != old.document.get(key)
    ]


def _snake(name: str) -> str:
    return re.sub(r"([A-Z])", r"_\1", name).upper()


def _problem(kind: str, path: str, message: str) -> Incompatibility:
    return Incompatibility(kind, path, message)
