"""Arrays and hstore values that are written as PostgreSQL writes them and read again; damaged ones are refused."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.spark.connectors.postgres.text_literals import LiteralError, split_arrays, split_hstores

texts = st.one_of(
    st.sampled_from(["", "NULL", "null", "a b", ",", "{}", '"', "\\", "=>", "[0:1]="]),
    st.text("ab,{}\"\\ =>N\n'", max_size=5),
)
items = st.one_of(st.none(), texts)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def element(text: str | None) -> str:
    if text is None:
        return "NULL"
    plain = text and text.upper() != "NULL" and not set(text) & set(',{}"\\ \n')
    return text if plain else quoted(text)


@given(st.lists(st.one_of(st.none(), st.lists(items, max_size=4)), max_size=5))
def test_arrays_that_are_written_and_read_are_the_same(arrays: list[list[str | None] | None]) -> None:
    written = [None if one is None else "{" + ",".join(map(element, one)) + "}" for one in arrays]
    offsets, elements = split_arrays(pa.array(written, pa.string()))
    flat = elements.to_pylist()
    read = [flat[low:high] for low, high in pairwise(offsets)]
    assert read == [[] if one is None else one for one in arrays]


@given(st.lists(st.dictionaries(texts, items, max_size=4), max_size=4))
def test_hstores_that_are_written_and_read_are_the_same(maps: list[dict[str, str | None]]) -> None:
    written = [
        ", ".join(f"{quoted(key)}=>{'NULL' if item is None else quoted(item)}" for key, item in one.items())
        for one in maps
    ]
    offsets, keys, values = split_hstores(pa.array(written, pa.string()))
    pairs = list(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    assert [dict(pairs[low:high]) for low, high in pairwise(offsets)] == maps


@settings(max_examples=300)
@given(st.lists(st.text('{}[]:=,"\\aN1>', max_size=8), max_size=3))
def test_damaged_literals_are_read_or_refused(damaged: list[str]) -> None:
    for split in (split_arrays, split_hstores):
        with contextlib.suppress(LiteralError):
            split(pa.array(damaged, pa.string()))
