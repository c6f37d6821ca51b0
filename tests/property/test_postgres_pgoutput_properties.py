"""Messages of pgoutput that are encoded, damaged or cut: they are decoded to what was encoded, or refused."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.spark.connectors.postgres.errors import ChangeOrderError, PgoutputError
from barnabas.spark.connectors.postgres.messages import (
    Begin,
    Column,
    Commit,
    LogicalMessage,
    Origin,
    Relation,
    ReplicaIdentity,
    Truncate,
    TypeName,
)
from barnabas.spark.connectors.postgres.pgoutput import decode_message, decode_rows
from barnabas.spark.connectors.postgres.transactions import TransactionReader
from tests.pgoutput import EPOCH_US, UNCHANGED, Row, delete, encode, insert, update

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8)
oids = st.integers(0, (1 << 32) - 1)
lsns = st.integers(0, (1 << 64) - 1)
times = st.integers(-(1 << 62), 1 << 62).map(lambda time: time + EPOCH_US)
columns = st.builds(Column, names, oids, st.integers(-1, (1 << 31) - 1), st.booleans())
messages = st.one_of(
    st.builds(Begin, lsns, times, oids),
    st.builds(Commit, lsns, lsns, times),
    st.builds(Origin, lsns, names),
    st.builds(TypeName, oids, names, names),
    st.builds(Truncate, st.lists(oids, max_size=4).map(tuple), st.booleans(), st.booleans()),
    st.builds(LogicalMessage, st.booleans(), lsns, names, st.binary(max_size=20)),
    st.builds(Relation, oids, names, names, st.sampled_from(ReplicaIdentity), st.lists(columns, max_size=4).map(tuple)),
)
values = st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=6))


@st.composite
def changes(draw: st.DrawFn, width: int) -> tuple[str, Row | None, Row | None, bytes]:
    """(tag, new row, old row, message)."""
    row = st.lists(values, min_size=width, max_size=width)
    tag = draw(st.sampled_from("IUKOD"))
    new = draw(row) if tag != "D" else None
    old = draw(row) if tag in "KOD" else None
    if tag == "I":
        assert new is not None
        return "I", new, old, insert(1, new)
    if new is None:
        return "D", new, old, delete(1, key=old)
    return "U", new, old, update(1, new, key=old if tag == "K" else None, old=old if tag == "O" else None)


def rows_of(tuples: Any) -> list[Row | None]:
    columns = [column.to_pylist() for column in tuples.values]
    for column, mask in zip(columns, tuples.unchanged, strict=True):
        for row in [] if mask is None else mask.nonzero()[0].tolist():
            assert column[row] is None
            column[row] = UNCHANGED
    return [
        [column[row] for column in columns] if present else None for row, present in enumerate(tuples.present.tolist())
    ]


@given(messages)
def test_a_message_that_is_encoded_and_decoded_is_the_same(message: Any) -> None:
    assert decode_message(1, encode(message)) == message


@given(st.integers(1, 4).flatmap(lambda width: st.tuples(st.just(width), st.lists(changes(width), max_size=8))))
def test_rows_that_are_encoded_and_decoded_are_the_same(given_rows: tuple[int, list[Any]]) -> None:
    width, rows = given_rows
    decoded = decode_rows(width, range(len(rows)), [message for *_, message in rows])
    assert bytes(decoded.tags).decode() == "".join(tag for tag, *_ in rows)
    assert rows_of(decoded.new) == [new for _, new, _, _ in rows]
    assert rows_of(decoded.old) == [old for _, _, old, _ in rows]


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes, cut or with a few of them changed."""
    out = bytearray(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)
    for _ in range(draw(st.integers(0, 3)) if out else 0):
        out[draw(st.integers(0, len(out) - 1))] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF, *b"IUDNKOtnub"]))
    return bytes(out)


@settings(max_examples=300)
@given(messages.map(encode).flatmap(damaged))
def test_a_damaged_message_is_decoded_or_refused(data: bytes) -> None:
    try:
        message = decode_message(1, data)
    except PgoutputError:
        return
    assert decode_message(1, encode(message)) == message


@settings(max_examples=300)
@given(changes(2).flatmap(lambda change: damaged(change[3])))
def test_a_damaged_row_is_decoded_or_refused(data: bytes) -> None:
    try:
        decode_rows(2, [1], [data])
    except PgoutputError:
        return


@settings(max_examples=300)
@given(st.data())
def test_a_peek_with_a_damaged_message_is_read_or_refused(data: Any) -> None:
    table = Relation(1, "s", "t", ReplicaIdentity.DEFAULT, (Column("a", 20, -1, True), Column("b", 25, -1, False)))
    whole = [encode(Begin(100, 0, 1)), encode(table)]
    whole += [message for *_, message in data.draw(st.lists(changes(2), max_size=3))]
    whole += [encode(Commit(100, 108, 0))]
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(damaged(whole[place]))
    reader = TransactionReader(0, 1 << 62)
    try:
        reader.feed([(1, 1, message) for message in whole])
        reader.finish()
    except (PgoutputError, ChangeOrderError):
        return
