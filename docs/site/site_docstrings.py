"""Codec: the docstrings of the code, which are plain English with `code` in single backticks -> reStructuredText.

An indented paragraph is code. The characters that have a meaning in reStructuredText only are escaped.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

_CODE = re.compile(r"`+([^`]+)`+")
_MARKUP = re.compile(r"([\\*|])|(?<=\w)_(?=\W|$)")
_ITEM = re.compile(r"(?:- |\d+\. )")


def to_rst(lines: list[str]) -> list[str]:
    """The lines of one docstring as reStructuredText."""
    rst: list[str] = []
    for paragraph in _paragraphs(lines):
        rst += [*_paragraph(paragraph), ""]
    return rst


def _paragraphs(lines: list[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line.rstrip())
        elif found[-1]:
            found.append([])
    return [paragraph for paragraph in found if paragraph]


def _paragraph(lines: list[str]) -> list[str]:
    if all(line.startswith("    ") for line in lines):
        return ["::", "", *lines]
    return _items(lines) if _ITEM.match(lines[0]) else [" ".join(_escape(line.strip()) for line in lines)]


def _items(lines: list[str]) -> list[str]:
    """The items of a list, each on a line of its own."""
    items: list[str] = []
    for line in lines:
        if _ITEM.match(line):
            items.append(_escape(line))
        else:
            items[-1] += " " + _escape(line.strip())
    return items


def _escape(line: str) -> str:
    parts = _CODE.split(line)
    return "".join(
        f"``{part.strip()}``" if number % 2 else _MARKUP.sub(r"\\\g<0>", part) for number, part in enumerate(parts)
    )


def on_docstring(_app: Sphinx, _kind: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = to_rst(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", on_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
