"""Value: names that column formats in other packages import from here: columns of byte strings, and `kernel`, which
compiles a function with numba."""

from __future__ import annotations

from barnabas.protocol.records.columnar._jit import (
    BYTES,
    I32,
    I64,
    MUTABLE_BYTES,
    OUT_I64,
    PAIR,
    copy_bytes,
    kernel,
    np,
    pa,
    scalar,
)
from barnabas.protocol.records.columnar.byte_column import ByteColumn, from_arrow
from barnabas.protocol.records.columnar.from_numpy import fixed_width_array, validity_buffer

__all__ = [
    "BYTES",
    "I32",
    "I64",
    "MUTABLE_BYTES",
    "OUT_I64",
    "PAIR",
    "ByteColumn",
    "copy_bytes",
    "fixed_width_array",
    "from_arrow",
    "kernel",
    "np",
    "pa",
    "scalar",
    "validity_buffer",
]
