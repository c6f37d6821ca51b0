"""Codec: columns of bytes as text (base64, hexadecimal) and back, and decimals as bytes and back.

Arrow has no kernels for these. All values of a column are converted by one call of a compiled loop.
"""

from __future__ import annotations

from typing import Any

from barnabas.client.columns.byte_column import ByteColumn, from_arrow, np, pa, validity_buffer
from barnabas.spark.connectors.converters.byte_kernels import (
    READING,
    STANDARD,
    URL_SAFE,
    read_base64,
    write_base64,
    write_hexadecimal,
    write_reversed,
    write_slices,
)


def column_of(out: Any, lengths: Any, nulls_of: Any, kind: Any) -> Any:
    """A column of a large type from its bytes and the lengths of its values, null where `nulls_of` is below 0."""
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))
    buffers = [validity_buffer(nulls_of >= 0), pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind, len(lengths), buffers)


def _ends(lengths: Any) -> Any:
    """Where each value starts if the values lie one after the other."""
    return np.cumsum(lengths, dtype=np.int64) - lengths


def base64_texts(column: Any, *, url_safe: bool = False) -> Any:
    """Each value of a binary column in base64 with padding, as Arrow large strings."""
    values = from_arrow(column)
    lengths = (np.maximum(values.length, 0).astype(np.int64) + 2) // 3 * 4
    out = np.empty(int(lengths.sum()), np.uint8)
    letters = URL_SAFE if url_safe else STANDARD
    write_base64(values.data, values.at, values.length, letters, _ends(lengths), out)
    return column_of(out, lengths, values.length, pa.large_string())


def bytes_of_base64(column: Any) -> Any:
    """The bytes of base64 texts (either alphabet, with or without padding), as Arrow large binary.

    Raises ValueError with the first row that is not base64.
    """
    values = from_arrow(column)
    length = values.length.copy()
    for _ in range(2):
        last = np.flatnonzero(length > 0)
        padded = last[values.data[values.at[last] + length[last] - 1] == ord("=")]
        length[padded] -= 1
    wrong = np.flatnonzero(length % 4 == 1)
    lengths = np.maximum(length, 0).astype(np.int64) * 6 // 8
    out = np.empty(int(lengths.sum()), np.uint8)
    bad = read_base64(values.data, values.at, length, READING, _ends(lengths), out)
    if bad >= 0 or len(wrong):
        row = int(bad) if bad >= 0 else int(wrong[0])
        raise ValueError(f"the text of row {row} is not base64")
    return column_of(out, lengths, values.length, pa.large_binary())


def hexadecimal_texts(column: Any) -> Any:
    """Each value of a binary column as lower-case hexadecimal digits, as Arrow large strings."""
    values = from_arrow(column)
    lengths = np.maximum(values.length, 0).astype(np.int64) * 2
    out = np.empty(int(lengths.sum()), np.uint8)
    write_hexadecimal(values.data, values.at, values.length, _ends(lengths), out)
    return column_of(out, lengths, values.length, pa.large_string())


def reversed_bytes(column: Any) -> Any:
    """Each value of a binary column with its bytes in the opposite order."""
    values = from_arrow(column)
    lengths = np.maximum(values.length, 0).astype(np.int64)
    out = np.empty(int(lengths.sum()), np.uint8)
    write_reversed(values.data, values.at, values.length, _ends(lengths), out)
    return column_of(out, lengths, values.length, pa.large_binary()).cast(pa.binary())


def slices(values: ByteColumn, kind: Any) -> Any:
    """A column of a large type from parts of other values: `values` has their places."""
    lengths = np.maximum(values.length, 0).astype(np.int64)
    out = np.empty(int(lengths.sum()), np.uint8)
    write_slices(values.data, values.at, values.length, _ends(lengths), out)
    return column_of(out, lengths, values.length, kind)


def _as_wide_decimal(column: Any) -> Any:
    kind = column.type
    if pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind):
        return column
    return column.cast(pa.decimal128(kind.precision, kind.scale))  # decimal32 and decimal64


def decimal_bytes(column: Any) -> Any:
    """Each decimal as its unscaled value, two's complement, big-endian, with as few bytes as possible (binary)."""
    column = _as_wide_decimal(column)
    rows, width = len(column), column.type.bit_width // 8
    buffer = column.buffers()[1]
    raw = np.frombuffer(b"" if buffer is None else buffer, np.uint8)[column.offset * width :][: rows * width]
    digits = np.ascontiguousarray(raw.reshape(rows, width)[:, ::-1])
    sign = np.where(digits[:, 0] >= 128, 255, 0).astype(np.uint8)
    redundant = np.ones(rows, bool)
    length = np.full(rows, width, np.int32)
    for place in range(width - 1):
        redundant &= (digits[:, place] == sign) & ((digits[:, place + 1] ^ sign) < 128)
        if not redundant.any():
            break
        length -= redundant
    at = np.arange(1, rows + 1, dtype=np.int64) * width - length
    if column.null_count:
        length[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return slices(ByteColumn(digits.reshape(-1), at, length), pa.large_binary()).cast(pa.binary())


def decimals_of_bytes(column: Any, kind: Any) -> Any:
    """Decimals of this type (decimal128 or decimal256) from unscaled values in two's complement, big-endian.

    Raises ValueError with the first row that has more bytes or digits than the type holds.
    """
    width = kind.bit_width // 8
    values = from_arrow(column)
    length = np.maximum(values.length, 0)
    _refuse(length > width, kind)
    filled = np.flatnonzero(length)
    digits = np.zeros((len(values), width), np.uint8)
    digits[filled] = np.where(values.data[values.at[filled]] >= 128, 255, 0).astype(np.uint8)[:, None]
    flat = digits.reshape(-1)
    out_at = np.arange(1, len(values) + 1, dtype=np.int64) * width - length
    write_slices(values.data, values.at, values.length, out_at, flat)
    raw = np.ascontiguousarray(digits[:, ::-1])
    found = pa.Array.from_buffers(kind, len(values), [validity_buffer(values.length >= 0), pa.py_buffer(raw)])
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        for row in range(len(found)):
            try:
                found.slice(row, 1).validate(full=True)
            except pa.ArrowInvalid:
                raise ValueError(f"the decimal of row {row} has more than {kind.precision} digits") from None
        raise
    return found


def _refuse(wrong: Any, kind: Any) -> None:
    if wrong.any():
        raise ValueError(f"the decimal of row {int(np.flatnonzero(wrong)[0])} has more than {kind.precision} digits")
