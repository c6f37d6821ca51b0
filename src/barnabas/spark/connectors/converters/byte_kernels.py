"""Codec: the compiled loops of base64, hexadecimal text and slices, over all values of a column.

Positions and lengths come from Arrow's offsets or from numpy, and the output has the size that the caller computed; a
length below 0 stands for null and writes nothing.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.client.columns.byte_column import BYTES, I32, I64, MUTABLE_BYTES, copy_bytes, kernel, np, scalar

_STANDARD: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
STANDARD: Final = np.frombuffer(_STANDARD, np.uint8)
URL_SAFE: Final = np.frombuffer(_STANDARD[:-2] + b"-_", np.uint8)
NO_LETTER: Final = 255


def _reading_table() -> Any:
    table = np.full(256, NO_LETTER, np.uint8)
    for letters in (STANDARD, URL_SAFE):
        table[letters] = np.arange(64, dtype=np.uint8)
    return table


READING: Final = _reading_table()
_PAD: Final = ord("=")


@kernel((BYTES, I64, I32, BYTES, I64, MUTABLE_BYTES))
def write_base64(data: Any, at: Any, length: Any, letters: Any, out_at: Any, out: Any) -> None:
    """Each value in base64 with padding."""
    for row in range(len(at)):
        size = np.int64(length[row])
        position = at[row]
        to = out_at[row]
        while size >= 3:
            group = np.int64(data[position]) << 16 | np.int64(data[position + 1]) << 8
            group |= np.int64(data[position + 2])
            out[to] = letters[group >> 18]
            out[to + 1] = letters[group >> 12 & 63]
            out[to + 2] = letters[group >> 6 & 63]
            out[to + 3] = letters[group & 63]
            position += 3
            to += 4
            size -= 3
        if size == 2:
            group = np.int64(data[position]) << 16 | np.int64(data[position + 1]) << 8
            out[to] = letters[group >> 18]
            out[to + 1] = letters[group >> 12 & 63]
            out[to + 2] = letters[group >> 6 & 63]
            out[to + 3] = _PAD
        elif size == 1:
            group = np.int64(data[position]) << 16
            out[to] = letters[group >> 18]
            out[to + 1] = letters[group >> 12 & 63]
            out[to + 2] = _PAD
            out[to + 3] = _PAD


@kernel((BYTES, I64, I32, BYTES, I64, MUTABLE_BYTES), returns=scalar)
def read_base64(data: Any, at: Any, length: Any, values: Any, out_at: Any, out: Any) -> Any:
    """The bytes of each text, whose length without padding is in `length`. Returns the first row with another letter
    than those of base64, or -1.
    """
    for row in range(len(at)):
        size = np.int64(length[row])
        position = at[row]
        to = out_at[row]
        bits = np.int64(0)
        count = 0
        for place in range(size):
            value = values[data[position + place]]
            if value == NO_LETTER:
                return row
            bits = (bits << 6 | np.int64(value)) & 0xFFFF
            count += 6
            if count >= 8:
                count -= 8
                out[to] = bits >> count & 255
                to += 1
    return -1


@kernel((BYTES, I64, I32, I64, MUTABLE_BYTES))
def write_hexadecimal(data: Any, at: Any, length: Any, out_at: Any, out: Any) -> None:
    """Each value as lower-case hexadecimal digits."""
    for row in range(len(at)):
        to = out_at[row]
        for place in range(np.int64(length[row])):
            byte = data[at[row] + place]
            high = byte >> 4
            low = byte & 15
            out[to] = high + (48 if high < 10 else 87)
            out[to + 1] = low + (48 if low < 10 else 87)
            to += 2


@kernel((BYTES, I64, I32, I64, MUTABLE_BYTES))
def write_reversed(data: Any, at: Any, length: Any, out_at: Any, out: Any) -> None:
    """Each value with its bytes in the opposite order."""
    for row in range(len(at)):
        size = np.int64(length[row])
        for place in range(size):
            out[out_at[row] + place] = data[at[row] + size - 1 - place]


@kernel((BYTES, I64, I32, I64, MUTABLE_BYTES))
def write_slices(data: Any, at: Any, length: Any, out_at: Any, out: Any) -> None:
    """Each value as it is."""
    for row in range(len(at)):
        if length[row] > 0:
            copy_bytes(out, out_at[row], data, at[row], np.int64(length[row]))
