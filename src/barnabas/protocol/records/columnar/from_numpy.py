"""Codec: numpy arrays as the buffers and arrays of Arrow, without a copy.

`pyarrow.array` makes the same arrays, but imports pandas if it is installed, to see whether it was given a series.
That takes 0.3 s in a process that has no other use for pandas, such as the planner of a source.
"""

from __future__ import annotations

from typing import Any

from barnabas.protocol.records.columnar._jit import np, pa


def validity_buffer(valid: Any) -> Any:
    """Arrow's validity bitmap of a numpy mask, or None if all values are valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def fixed_width_array(values: Any, kind: Any, valid: Any) -> Any:
    """An Arrow array over numpy numbers, which have the width of the type `kind`; null where `valid` is false."""
    assert values.itemsize * 8 == kind.bit_width and values.flags.c_contiguous, (values.dtype, kind)
    return pa.Array.from_buffers(kind, len(values), [validity_buffer(valid), pa.py_buffer(values)])
