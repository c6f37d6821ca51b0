"""Shell: how the kernels of this package are compiled, and what to say when the libraries for it are missing.

Signatures are explicit, so there is one version of each kernel and it is compiled (or read from numba's cache) on
import. The cache lies beside the source, or in the user's cache directory when site-packages is read-only, or, when
neither can be written, nowhere: then each process compiles anew, which takes a few seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

try:
    import numba
    import numpy as np
    import pyarrow as pa
except ImportError as missing:  # pragma: no cover - depends on the environment
    raise ImportError(
        f"columnar record batches need numpy, numba and pyarrow ({missing.name} is missing): "
        "pip install 'barnabas[columnar]'. Without them use barnabas.records.batch, record by record."
    ) from missing

F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["BYTES", "I32", "I64", "MUTABLE_BYTES", "OUT_I32", "OUT_I64", "kernel", "np", "pa", "scalar"]

scalar = numba.int64
BYTES = numba.types.Array(numba.uint8, 1, "C", readonly=True)
MUTABLE_BYTES = numba.uint8[::1]
I64 = numba.types.Array(numba.int64, 1, "C", readonly=True)
I32 = numba.types.Array(numba.int32, 1, "C", readonly=True)
OUT_I64 = numba.int64[::1]
OUT_I32 = numba.int32[::1]


def kernel(*signature: Any) -> Callable[[F], F]:
    """Compiles a function in nopython mode, without the GIL, cached on disk where that is possible."""

    def compile_it(function: F) -> F:
        try:
            compiled: F = numba.njit(*signature, nogil=True, cache=True)(function)
        except RuntimeError as error:
            if "cache" not in str(error):
                raise
            compiled = numba.njit(*signature, nogil=True)(function)
        return compiled

    return compile_it
