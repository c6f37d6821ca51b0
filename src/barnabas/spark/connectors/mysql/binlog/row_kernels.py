"""Codec: the loops over the bytes of rows, compiled by numba. The layout of rows is drawn in `rows.py`.

A kernel reads nothing beyond the end of a part, and reports a row that leaves its part by the row's number.
"""

from __future__ import annotations

from typing import Any

from barnabas.protocol.records.columnar._jit import (
    BYTES,
    I32,
    I64,
    MUTABLE_BYTES,
    OUT_I32,
    OUT_I64,
    copy_bytes,
    kernel,
    np,
    scalar,
)


@kernel((scalar, BYTES, I64, I64, I32, OUT_I64, OUT_I64, OUT_I32))
def find_cells(images: Any, data: Any, begins: Any, ends: Any, widths: Any, counts: Any, at: Any, length: Any) -> Any:
    """Find the cells of all rows.

    Part p of the rows is `data[begins[p] : ends[p]]`, and gets its number of rows in `counts[p]`. A row has `images`
    images (1, or 2 for an UPDATE) with the same number of cells each. `widths` has an entry for each column of each
    image: a positive width in bytes, or minus the number of bytes of the length before the cell. Unless `at` is empty,
    cell c of image i of row r is `data[at[k] : at[k] + length[k]]` with k = (i * columns + c) * rows + r, where the
    number of rows is `len(at) // len(widths)`; `length` is -1 for null. Returns the number of rows, or -1 - p if a row
    leaves part p.
    """
    rows = 0
    write = len(at) > 0
    total = len(at) // len(widths)
    columns = len(widths) // images
    bitmap_bytes = (columns + 7) // 8
    for part in range(len(begins)):
        position = begins[part]
        end = ends[part]
        first = rows
        while position < end:
            for image in range(images):
                bitmap = position
                position += bitmap_bytes
                if position > end:
                    return -1 - part
                for column in range(columns):
                    slot = image * columns + column
                    if data[bitmap + (column >> 3)] >> np.uint8(column & 7) & 1:
                        if write:
                            at[slot * total + rows] = 0
                            length[slot * total + rows] = -1
                        continue
                    width = np.int64(widths[slot])
                    if width < 0:
                        prefix = -width
                        if position + prefix > end:
                            return -1 - part
                        width = np.int64(0)
                        for k in range(prefix):
                            width |= np.int64(data[position + k]) << (8 * k)
                        position += prefix
                    if width > end - position:
                        return -1 - part
                    if write:
                        at[slot * total + rows] = position
                        length[slot * total + rows] = width
                    position += width
            rows += 1
        counts[part] = rows - first
    return rows


@kernel((BYTES, I64, I32, MUTABLE_BYTES, I32))
def copy_cells(data: Any, at: Any, length: Any, out: Any, offsets: Any) -> Any:
    """Copy cell i to `out[offsets[i] : offsets[i + 1]]`, and fill the rest of that range with zeros."""
    for i in range(len(at)):
        size = length[i]
        if size > 0:
            copy_bytes(out, np.int64(offsets[i]), data, at[i], np.int64(size))
            for k in range(offsets[i] + size, offsets[i + 1]):
                out[k] = 0
        else:
            for k in range(offsets[i], offsets[i + 1]):
                out[k] = 0
    return 0


@kernel((BYTES, I64, I32, scalar, MUTABLE_BYTES))
def gather_fixed(data: Any, at: Any, length: Any, width: Any, out: Any) -> Any:
    """Copy the cells of `width` bytes to `out`, one behind the other, with zeros for nulls."""
    for i in range(len(at)):
        base = i * width
        if length[i] < 0:
            for k in range(width):
                out[base + k] = 0
        else:
            for k in range(width):
                out[base + k] = data[at[i] + k]
    return 0
