"""Machine: searching, sorting and paging of long lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from barnabas.console.errors import BadInputError

PAGE_ROWS: Final = 50
Row = dict[str, Any]


def page_of(
    rows: Sequence[Row],
    query: Mapping[str, str],
    *,
    name: str,
    sorts: Mapping[str, Callable[[Row], Any]],
) -> dict[str, Any]:
    """The rows whose `name` has the text `q`, sorted by `sort` (a leading `-` reverses), and one page of them."""
    wanted = query.get("q", "").strip().lower()
    found = [row for row in rows if wanted in str(row[name]).lower()]
    sort = query.get("sort") or name
    key = sorts.get(sort.lstrip("-"))
    if key is None:
        raise BadInputError(f"sort is one of {', '.join(sorts)}, with or without a leading -.")
    found.sort(key=lambda row: str(row[name]))
    found.sort(key=key, reverse=sort.startswith("-"))
    pages = max(1, -(-len(found) // PAGE_ROWS))
    number = query.get("page") or "1"
    page = min(max(int(number) if number.isdecimal() and len(number) < 10 else 1, 1), pages)
    return {
        "rows": found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
        "total": len(rows),
        "found": len(found),
        "page": page,
        "pages": pages,
        "q": query.get("q", ""),
        "sort": sort,
    }
