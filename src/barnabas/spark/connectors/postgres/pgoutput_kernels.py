"""Codec: the compiled loops that find and copy the values of row messages. `pgoutput.py` draws the layout.

The input is not trusted: each read is checked against the end of its message.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.client.columns.byte_column import BYTES, I32, I64, MUTABLE_BYTES, PAIR, copy_bytes, kernel, np, scalar

NULL: Final = -1
UNCHANGED: Final = -2
NO_TUPLE: Final = -3

_GOOD: Final = 0
_TRUNCATED: Final = 1
_BAD_TAG: Final = 2
_BAD_COUNT: Final = 3
_BINARY: Final = 4
_BAD_KIND: Final = 5
_BAD_LENGTH: Final = 6
_LEFT_OVER: Final = 7
PROBLEMS: Final = {
    _TRUNCATED: "it ends before its last value",
    _BAD_TAG: "the letter of a tuple is not the one that can stand here (N after I; K, O or N after U; K or O after D)",
    _BAD_COUNT: "its tuple does not have the {columns} columns of its table",
    _BINARY: "a value is in binary form, which was not requested (option binary)",
    _BAD_KIND: "the letter of a value is not n, u or t",
    _BAD_LENGTH: "the length of a value is negative or larger than the rest of the message",
    _LEFT_OVER: "bytes are left over after the message",
}
"""Number -> what is wrong with the message."""

_PLACES: Final = "int64[:, ::1]"
_LENGTHS: Final = "int32[:, ::1]"
_TRIPLE: Final = "UniTuple(int64, 3)"
_INSERT: Final = ord("I")
_UPDATE: Final = ord("U")
_DELETE: Final = ord("D")
_NEW: Final = ord("N")
_KEY: Final = ord("K")
_OLD: Final = ord("O")
_IS_NULL: Final = ord("n")
_IS_UNCHANGED: Final = ord("u")
_IS_TEXT: Final = ord("t")
_IS_BINARY: Final = ord("b")


@kernel((BYTES, scalar, scalar, _PLACES, _LENGTHS, scalar), returns=PAIR)
def _find_tuple(data: Any, position: Any, end: Any, at: Any, lengths: Any, row: Any) -> Any:
    """(position after the tuple or of the problem, problem)."""
    columns = len(at)
    if end - position < 2:
        return position, _TRUNCATED
    if (data[position] << 8 | data[position + 1]) != columns:
        return position, _BAD_COUNT
    position += 2
    for column in range(columns):
        if position >= end:
            return position, _TRUNCATED
        kind = data[position]
        position += 1
        if kind == _IS_TEXT:
            if end - position < 4:
                return position, _TRUNCATED
            length = np.int64(data[position]) << 24 | np.int64(data[position + 1]) << 16
            length |= np.int64(data[position + 2]) << 8 | np.int64(data[position + 3])
            position += 4
            if length > end - position:
                return position - 4, _BAD_LENGTH
            at[column, row] = position
            lengths[column, row] = length
            position += length
        elif kind == _IS_NULL:
            lengths[column, row] = NULL
        elif kind == _IS_UNCHANGED:
            lengths[column, row] = UNCHANGED
        elif kind == _IS_BINARY:
            return position - 1, _BINARY
        else:
            return position - 1, _BAD_KIND
    return position, _GOOD


@kernel((BYTES, I64, MUTABLE_BYTES, MUTABLE_BYTES, "int64[:, :, ::1]", "int32[:, :, ::1]"), returns=_TRIPLE)
def find_values(data: Any, ends: Any, tags: Any, old_tags: Any, at: Any, lengths: Any) -> Any:
    """Find each value of the row messages whose ends in `data` are `ends`.

    Fills `tags`, `old_tags` (0, K or O), and `at` and `lengths`, which are [new and old, column, row]; a length is
    NULL, UNCHANGED or NO_TUPLE if there is no value. Returns (row, position in its message, problem), where problem is
    0 if all messages are good.
    """
    start = np.int64(0)
    for row in range(len(ends)):
        end = ends[row]
        if end - start < 6:
            return row, end - start, _TRUNCATED
        tag = data[start]
        tags[row] = tag
        position = start + 5
        letter = data[position]
        if letter in (_KEY, _OLD):
            if tag == _INSERT:
                return row, position - start, _BAD_TAG
            old_tags[row] = letter
            position, problem = _find_tuple(data, position + 1, end, at[1], lengths[1], row)
            if problem:
                return row, position - start, problem
            if tag == _UPDATE:
                if position >= end:
                    return row, position - start, _TRUNCATED
                letter = data[position]
        elif tag == _DELETE:
            return row, position - start, _BAD_TAG
        if tag != _DELETE:
            if letter != _NEW:
                return row, position - start, _BAD_TAG
            position, problem = _find_tuple(data, position + 1, end, at[0], lengths[0], row)
            if problem:
                return row, position - start, problem
        if position != end:
            return row, position - start, _LEFT_OVER
        start = end
    return 0, 0, _GOOD


@kernel((BYTES, I64, I32, I32, MUTABLE_BYTES))
def copy_values(data: Any, at: Any, lengths: Any, offsets: Any, out: Any) -> None:
    """Copy each value that has a length to its offset in `out`, which is large enough for all."""
    for row in range(len(at)):
        if lengths[row] > 0:
            copy_bytes(out, offsets[row], data, at[row], lengths[row])
