"""Machine: whether every document that one JSON Schema accepts is accepted by another.

The rules and the names of the violations are those of Confluent's registry. Schemas are compared part by part, and a
change that is not known to be compatible is a violation. This also holds for `patternProperties`, `contains` and `if`,
whose changes Confluent's registry ignores.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final

from barnabas.registry.compatibility.effort import Effort
from barnabas.registry.compatibility.json_content import compare_arrays, compare_objects
from barnabas.registry.formats.json_nodes import JsonSchemaKind, JsonSchemaNode
from barnabas.registry.values import Incompatibility

_EQUALITIES_PER_STEP: Final = 50
"""Comparing two small values takes a fraction of a step."""


def read_problems(reader: JsonSchemaNode, writer: JsonSchemaNode) -> list[Incompatibility]:
    """The reasons why `reader` may reject documents that `writer` accepts."""
    return SchemaComparison().compare(writer, reader, "#")


class SchemaComparison:
    """One comparison of an old schema, with which documents were written, with a new schema, which is to read them. A
    pair of nodes that is already being compared counts as compatible, so that the comparison of recursive schemas ends.
    """

    def __init__(self) -> None:
        self._under_way: set[tuple[int, int]] = set()
        self._effort = Effort()

    def compare(self, old: JsonSchemaNode, new: JsonSchemaNode, path: str) -> list[Incompatibility]:
        """The problems at `path`, a pointer into the schemas. Raises InvalidSchemaError after too many steps."""
        self._effort.spend()
        pair = (id(old), id(new))
        if pair in self._under_way or old is new:
            return []
        self._under_way.add(pair)
        try:
            return self._compare(old, new, path)
        finally:
            self._under_way.discard(pair)

    def _compare(self, old: JsonSchemaNode, new: JsonSchemaNode, path: str) -> list[Incompatibility]:
        if new.kind.combined and not old.kind.combined:
            candidates: Iterable[JsonSchemaNode] = ()
            if len(new.branches) == 1 or new.kind is not JsonSchemaKind.ALL:
                candidates = new.branches
            if any(not self.compare(old, branch, path) for branch in candidates):
                return []
        # A document that matched all parts matched each of them, so one compatible part is enough.
        if old.kind.combined and not new.kind.combined:
            parts = old.branches if old.kind is JsonSchemaKind.ALL or len(old.branches) == 1 else []
            if any(not self.compare(part, new, path) for part in parts):
                return []
        if old.kind.combined and new.kind.combined:
            return self._combined(old, new, path)
        if old.kind is not new.kind:
            if old.kind is JsonSchemaKind.NOTHING or new.kind is JsonSchemaKind.EMPTY:
                return []
            return [problem("TYPE_CHANGED", path, f"{old.kind.value} became {new.kind.value}")]
        match old.kind:
            case JsonSchemaKind.STRING:
                return _strings(old, new, path)
            case JsonSchemaKind.NUMBER:
                return _numbers(old, new, path)
            case JsonSchemaKind.ENUM:
                return _enums(old, new, path, self._effort)
            case JsonSchemaKind.CONST:
                same = _same(old.document["const"], new.document["const"])
                return [] if same else [problem("CONST_CHANGED", f"{path}/const", "the constant was changed")]
            case JsonSchemaKind.NOT:
                if self.compare(new.branches[0], old.branches[0], f"{path}/not"):
                    return [problem("NOT_TYPE_EXTENDED", f"{path}/not", "more is excluded than before")]
            case JsonSchemaKind.CONDITION:
                return _conditions(old, new, path)
            case JsonSchemaKind.OBJECT:
                return compare_objects(self.compare, self._effort, old, new, path)
            case JsonSchemaKind.ARRAY:
                return compare_arrays(self.compare, old, new, path)
        return []

    def _combined(self, old: JsonSchemaNode, new: JsonSchemaNode, path: str) -> list[Incompatibility]:
        problems: list[Incompatibility] = []
        if not _may_become(old, new):
            return [problem("COMBINED_TYPE_CHANGED", path, f"{old.kind.value} became {new.kind.value}")]
        before, after = _distinct(old.branches, self._effort), _distinct(new.branches, self._effort)
        if new.kind is JsonSchemaKind.ALL and len(after) > len(before):
            problems.append(
                problem("PRODUCT_TYPE_EXTENDED", path, "allOf has more parts, and documents must match all of them")
            )
        if JsonSchemaKind.ALL not in (old.kind, new.kind) and len(after) < len(before):
            problems.append(problem("SUM_TYPE_NARROWED", path, f"{new.kind.value} has fewer alternatives"))
        fitting = [
            [not self.compare(one, other, f"{path}/{old.kind.value}/{index}") for other in after]
            for index, one in enumerate(before)
        ]
        if _matching_size(fitting) < min(len(before), len(after)):
            message = "the old and new parts cannot be paired so that each pair is compatible"
            problems.append(problem("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path, message))
        return problems


def problem(kind: str, path: str, message: str) -> Incompatibility:
    return Incompatibility(kind, path if "/" in path else f"{path}/", message)


def limit_problems(
    old: JsonSchemaNode,
    new: JsonSchemaNode,
    path: str,
    key: str,
    code: str,
    *,
    upper: bool,
    values: tuple[Any, Any] | None = None,
) -> list[Incompatibility]:
    """The violations of a limit that was added or became stricter."""
    before, after = values if values is not None else (old.document.get(key), new.document.get(key))
    if after is None or before == after:
        return []
    if before is None:
        return [problem(f"{code}_ADDED", f"{path}/{key}", f"{key} {after} is new")]
    if upper and after < before:
        return [problem(f"{code}_DECREASED", f"{path}/{key}", f"{key} decreased from {before} to {after}")]
    if not upper and after > before:
        return [problem(f"{code}_INCREASED", f"{path}/{key}", f"{key} increased from {before} to {after}")]
    return []


def _may_become(old: JsonSchemaNode, new: JsonSchemaNode) -> bool:
    """Whether one combination may replace another: anyOf accepts all documents that allOf and oneOf accepted."""
    if old.kind is new.kind or new.kind is JsonSchemaKind.ANY:
        return True
    if new.kind is JsonSchemaKind.ONE:
        return len(old.branches) == 1 or (old.kind is JsonSchemaKind.ALL and len(new.branches) == 1)
    return len(old.branches) == 1 and len(new.branches) == 1


def _distinct(branches: list[JsonSchemaNode], effort: Effort) -> list[JsonSchemaNode]:
    distinct: list[JsonSchemaNode] = []
    for node in branches:
        effort.spend(len(distinct) // _EQUALITIES_PER_STEP)
        if not any(
            node.kind is other.kind and node.integer == other.integer and node.document == other.document
            for other in distinct
        ):
            distinct.append(node)
    return distinct


def _matching_size(fitting: list[list[bool]]) -> int:
    """The size of a maximum matching. A row and a column may be paired if `fitting[row][column]` is true; a row and a
    column can be in one pair only.
    """
    row_of: dict[int, int] = {}

    def place(row: int, seen: set[int]) -> bool:
        for column, fits in enumerate(fitting[row]):
            if fits and column not in seen:
                seen.add(column)
                if column not in row_of or place(row_of[column], seen):
                    row_of[column] = row
                    return True
        return False

    return sum(place(row, set()) for row in range(len(fitting)))


def _strings(old: JsonSchemaNode, new: JsonSchemaNode, path: str) -> list[Incompatibility]:
    problems = limit_problems(old, new, path, "maxLength", "MAX_LENGTH", upper=True)
    problems += limit_problems(old, new, path, "minLength", "MIN_LENGTH", upper=False)
    before, after = old.document.get("pattern"), new.document.get("pattern")
    if after is not None and before != after:
        kind = "PATTERN_ADDED" if before is None else "PATTERN_CHANGED"
        problems.append(problem(kind, f"{path}/pattern", f"strings must now match {after!r}"))
    return problems


def _numbers(old: JsonSchemaNode, new: JsonSchemaNode, path: str) -> list[Incompatibility]:
    problems: list[Incompatibility] = []
    for key, code, upper in (("maximum", "MAXIMUM", True), ("minimum", "MINIMUM", False)):
        exclusive = f"exclusive{key.capitalize()}"
        was, now = _limits(old, key, exclusive), _limits(new, key, exclusive)
        problems += limit_problems(old, new, path, key, code, upper=upper, values=(was[0], now[0]))
        problems += limit_problems(old, new, path, exclusive, f"EXCLUSIVE_{code}", upper=upper, values=(was[1], now[1]))
    before, after = old.document.get("multipleOf"), new.document.get("multipleOf")
    if after is not None and before != after:
        place = f"{path}/multipleOf"
        if before is None:
            problems.append(problem("MULTIPLE_OF_ADDED", place, f"numbers must now be multiples of {after}"))
        elif Fraction(str(before)) % Fraction(str(after)):
            expanded = Fraction(str(after)) % Fraction(str(before)) == 0
            kind = "MULTIPLE_OF_EXPANDED" if expanded else "MULTIPLE_OF_CHANGED"
            problems.append(problem(kind, place, f"multiples of {before} need not be multiples of {after}"))
    if new.integer and not old.integer:
        problems.append(problem("TYPE_NARROWED", path, "number became integer"))
    return problems


def _limits(node: JsonSchemaNode, key: str, exclusive: str) -> tuple[Any, Any]:
    """The (inclusive, exclusive) limit. In draft 4 the exclusive limit is a boolean that modifies the inclusive one."""
    limit, strict = node.document.get(key), node.document.get(exclusive)
    if isinstance(strict, bool):
        return (None, limit) if strict else (limit, None)
    return limit, strict


def _enums(old: JsonSchemaNode, new: JsonSchemaNode, path: str, effort: Effort) -> list[Incompatibility]:
    before, after = old.document["enum"], new.document["enum"]
    lost = _missing(before, after, effort)
    if not lost:
        return []
    gained = bool(_missing(after, before, effort))
    kind = "ENUM_ARRAY_CHANGED" if gained else "ENUM_ARRAY_NARROWED"
    return [problem(kind, f"{path}/enum", f"no longer allowed: {', '.join(map(repr, lost))}")]


def _missing(values: list[Any], others: list[Any], effort: Effort) -> list[Any]:
    """The values that `others` lacks. Texts are found by their hashes; other values are compared one by one."""
    texts = {other for other in others if isinstance(other, str)}
    rest = [other for other in others if not isinstance(other, str)]
    missing: list[Any] = []
    for value in values:
        if isinstance(value, str):
            found = value in texts
        else:
            effort.spend(len(rest) // _EQUALITIES_PER_STEP)
            found = any(_same(value, other) for other in rest)
        if not found:
            missing.append(value)
    return missing


def _conditions(old: JsonSchemaNode, new: JsonSchemaNode, path: str) -> list[Incompatibility]:
    keys = ("if", "then", "else")
    if all(old.document.get(key) == new.document.get(key) for key in keys):
        return []
    return [problem("CONDITION_CHANGED", f"{path}/if", "if, then or else changed, which cannot be compared")]


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON values: true does not equal 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other
