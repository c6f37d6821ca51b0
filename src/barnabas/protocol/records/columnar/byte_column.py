"""Value: a column of nullable byte strings as (data, position, length), the input of every kernel of this package."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from barnabas.protocol.records.columnar._jit import np, pa


class ByteColumn(Struct):
    """Row i is `data[at[i] : at[i] + length[i]]`, or null when the length is -1."""

    data: Any
    at: Any
    length: Any

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: Any) -> ByteColumn:
        """The column of these rows, without a copy of the data."""
        return ByteColumn(self.data, self.at[rows], self.length[rows])


def nulls(rows: int) -> ByteColumn:
    """A column of nulls."""
    return ByteColumn(np.zeros(0, np.uint8), np.zeros(rows, np.int64), np.full(rows, -1, np.int32))


def from_arrow(array: Any) -> ByteColumn:
    """A binary or string column (large or not) seen through its own memory. Raises TypeError for other types."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if isinstance(array, pa.ChunkedArray):
            raise TypeError("the column does not fit one array (2 GiB): encode it in parts")
    kind = array.type
    if pa.types.is_null(kind):
        return nulls(len(array))
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        width = np.int32
    elif pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        width = np.int64
    else:
        raise TypeError(f"keys and values are binary or string columns, not {kind}: cast the column first")
    if not len(array):
        return nulls(0)
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    if len(lengths) and int(lengths.max()) > (1 << 31) - 1:
        raise ValueError("a key or value is larger than 2 GiB, which no record can hold")
    length = lengths.astype(np.int32)
    if array.null_count:
        length[~array.is_valid().to_numpy(zero_copy_only=False)] = -1
    return ByteColumn(data, offsets[:-1], length)
