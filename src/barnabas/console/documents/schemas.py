"""Shell: the subjects of the schema registry, the versions of one, and the difference between two of them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any, Final

from barnabas.console.documents.lists import page_of
from barnabas.console.errors import BadInputError, NotFoundError
from barnabas.console.sources import Call
from barnabas.registry.errors import RegistryError
from barnabas.registry.values import Compatibility, Schema, SchemaType

LEVELS: Final = tuple(level.value for level in Compatibility)
TYPES: Final = tuple(kind.value for kind in SchemaType)
_SUBJECTS_DESCRIBED_MAX: Final = 50


async def subject_list(call: Call) -> dict[str, Any]:
    """The subjects, with the newest version of each on the page."""
    registry = call.sources.registry
    rows = [{"subject": name} for name in await registry.subjects()]
    page = page_of(rows, call.query, name="subject", sorts={"subject": lambda row: row["subject"]})
    for row in page["rows"][:_SUBJECTS_DESCRIBED_MAX]:
        newest = await registry.latest(row["subject"])
        row.update(version=newest.version, id=newest.id, type=newest.schema.type.value)
    return {**page, "compatibility": str((await registry.compatibility()).value), "levels": LEVELS, "types": TYPES}


async def subject(call: Call) -> dict[str, Any]:
    """One subject: a version, its references, and the difference from another version."""
    registry, name = call.sources.registry, call.path["subject"]
    try:
        versions = await registry.versions(name)
    except RegistryError as error:
        if error.code // 100 == 404 or error.code == 404:
            raise NotFoundError(f"The subject {name!r} does not exist.") from None
        raise
    right = _version(call.query.get("version"), versions, versions[-1])
    earlier = [version for version in versions if version < right]
    left = _version(call.query.get("against"), versions, earlier[-1]) if earlier or call.query.get("against") else None
    shown = await registry.version(name, right)
    text = pretty(shown.schema)
    difference = None
    if left is not None and left != right:
        before = await registry.version(name, left)
        difference = list(diff_lines(pretty(before.schema), text))
    return {
        "subject": name,
        "versions": versions,
        "version": right,
        "against": left,
        "id": shown.id,
        "type": shown.schema.type.value,
        "schema": text,
        "references": [reference.to_json() for reference in shown.schema.references],
        "referenced_by": await registry.referenced_by(name, right),
        "compatibility": str((await registry.compatibility(name)).value),
        "diff": difference,
        "levels": LEVELS,
        "types": TYPES,
    }


def pretty(schema: Schema) -> str:
    """The text with one field in a line, if it is JSON."""
    if schema.type is SchemaType.PROTOBUF:
        return schema.text
    try:
        return json.dumps(json.loads(schema.text), indent=2, ensure_ascii=False)
    except ValueError:
        return schema.text


def diff_lines(before: str, after: str) -> Iterator[dict[str, str]]:
    """The lines of both texts: `kind` is same, added or removed."""
    for line in difflib.ndiff(before.splitlines(), after.splitlines()):
        kind = {"+": "added", "-": "removed", " ": "same"}.get(line[0])
        if kind is not None:  # lines with ? only point at characters
            yield {"kind": kind, "text": line[2:]}


def _version(text: str | None, versions: list[int], otherwise: int) -> int:
    if not text:
        return otherwise
    if not text.isdecimal() or len(text) > 9 or int(text) not in versions:
        raise BadInputError(f"There is no version {text!r}; the versions are {', '.join(map(str, versions))}.")
    return int(text)
