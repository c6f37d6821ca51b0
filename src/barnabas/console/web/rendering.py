"""Shell: templates -> HTML. Every value is escaped; templates mark nothing as safe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from barnabas.client.explanations.words import counted
from barnabas.console import units

_VALUE_CHARACTERS: Final = 20_480


def make_environment() -> Environment:
    """The environment of all templates, in `web/templates`."""
    environment = Environment(
        loader=PackageLoader("barnabas.console.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        size=units.size,
        count=units.count_text,
        rate=units.rate_text,
        size_rate=units.size_rate_text,
        moment=units.moment_text,
        duration=units.duration_text,
        counted=counted,
        q=path_part,
        shown=shown,
        one_line=one_line,
    )
    environment.globals.update(ago=units.ago_text, query=query_string)
    return environment


def path_part(value: object) -> str:
    """A value as one segment of a path."""
    return quote(str(value), safe="")


def query_string(given: Mapping[str, Any], **changes: object) -> str:
    """`?a=1&b=2` of a query with changes; empty values are left out."""
    merged = {**given, **changes}
    text = urlencode({name: str(value) for name, value in merged.items() if value not in (None, "", False)})
    return f"?{text}" if text else "?"


def shown(value: Any, characters: int = _VALUE_CHARACTERS) -> str:
    """A decoded key or value as text in several lines, cut at a number of characters."""
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= characters else text[:characters] + f"\n… {len(text) - characters:,} more characters"


def one_line(value: Any, characters: int = 160) -> str:
    """The beginning of a decoded key or value, in one line."""
    if value is None:
        return "null"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(text[: characters * 2].split())
    return text if len(text) <= characters else text[:characters] + "…"
