"""Codec: arrays and hstore values in text form -> offsets and flat columns of their elements.

    array    {1,2,NULL}   {"a b","say \\"x\\""}   [0:1]={1,2}   {{1,2},{3,4}}
    hstore   "a"=>"1", "b"=>NULL

An element is quoted if it is empty, reads NULL, or has a character that means something in a literal.
Source: PostgreSQL's manual, sections "Array Input and Output Syntax" and "hstore"; `array_out`, `hstore_out`.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow.compute

from barnabas.client.columns.byte_column import np, pa

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

_QUOTED: Final = r'"((?:[^"\\]|\\.)*+)"'
_ELEMENT: Final = re.compile(rf'{_QUOTED}|([^",{{}}\\]+)', re.DOTALL)
_BOUNDS: Final = re.compile(r"\[[-+]?\d+:[-+]?\d+\]=", re.ASCII)
_PAIR: Final = re.compile(rf"{_QUOTED}=>(?:{_QUOTED}|NULL)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class LiteralError(ValueError):
    """A value is not a literal of its type, or has several dimensions."""


def split_arrays(text: Any) -> tuple[Any, Any]:
    """(offsets, elements) of a string column of arrays with one dimension. A null has no elements.

    Raises LiteralError if a value is malformed or has several dimensions.
    """
    simple = _pc.match_substring_regex(text, r"^\{[^{}\"\\]*\}$")
    if _pc.all(simple, skip_nulls=True, min_count=0).as_py():
        return _split_simple(text)
    elements: list[str | None] = []
    offsets = [0]
    for value in text.to_pylist():
        if value is not None:
            _parse_array(value, elements)
        offsets.append(len(elements))
    return np.array(offsets, np.int32), pa.array(elements, pa.string())


def _split_simple(text: Any) -> tuple[Any, Any]:
    """Without quotes, no element is empty, so an empty element comes from an empty array."""
    inner = _pc.utf8_slice_codeunits(text, 1, -1)
    lists = _pc.split_pattern(inner, ",")
    lengths = _pc.fill_null(_pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    elements = lists.flatten()
    empty = _pc.equal(elements, "")
    empties = _pc.fill_null(_pc.equal(inner, ""), False).to_numpy(zero_copy_only=False)
    if (_pc.sum(empty).as_py() or 0) != empties.sum():
        raise LiteralError("an element without quotes is empty")
    elements = elements.filter(_pc.invert(empty))
    elements = _pc.if_else(_pc.equal(elements, "NULL"), pa.scalar(None, pa.string()), elements)
    return np.concatenate([[0], np.cumsum(lengths - empties)]).astype(np.int32), elements


def _parse_array(value: str, elements: list[str | None]) -> None:
    bounds = _BOUNDS.match(value)
    at = 0 if bounds is None else bounds.end()
    if value[at : at + 2] in ("{{", "") or value.startswith("[", at) or (value[:1] == "[" and bounds is None):
        raise LiteralError("it has several dimensions, and a list has one")
    if value[at] != "{" or value[-1] != "}":
        raise LiteralError("an array is enclosed in braces")
    at += 1
    if at == len(value) - 1:
        return
    while True:
        match = _ELEMENT.match(value, at)
        if match is None:
            raise LiteralError(f"there is no element at character {at}")
        quoted, plain = match.groups()
        elements.append(_unescape(quoted) if plain is None else None if plain == "NULL" else plain)
        at = match.end()
        if at == len(value) - 1:
            return
        if value[at] != ",":
            raise LiteralError(f"there is no comma at character {at}")
        at += 1


def _unescape(quoted: str) -> str:
    return _ESCAPE.sub(r"\1", quoted) if "\\" in quoted else quoted


def split_hstores(text: Any) -> tuple[Any, Any, Any]:
    """(offsets, keys, values) of a string column of hstore values. Raises LiteralError if a value is malformed."""
    keys: list[str] = []
    values: list[str | None] = []
    offsets = [0]
    for value in text.to_pylist():
        at = 0
        while value and at < len(value):
            match = _PAIR.match(value, at)
            if match is None:
                raise LiteralError(f"there is no pair at character {at}")
            key, item = match.groups()
            keys.append(_unescape(key))
            values.append(None if item is None else _unescape(item))
            at = match.end()
            if at < len(value):
                if not value.startswith(", ", at) or at + 2 == len(value):
                    raise LiteralError(f"there is no pair after character {at}")
                at += 2
        offsets.append(len(keys))
    return np.array(offsets, np.int32), pa.array(keys, pa.string()), pa.array(values, pa.string())
