"""Shell: compiles the kernels of this package, and reports missing libraries.

Signatures are explicit, so that there is one version of each kernel. It is compiled, or read from numba's cache, at the
first call of the kernel or of one that calls it: a process that imports all kernels mostly uses a few, and reading one
takes some milliseconds. Numba itself is imported then, too: that takes a quarter of a second, and Spark starts
processes that only plan. Types are therefore text in numba's own notation.

The cache is beside the source, or in the user's cache directory if site-packages is read-only. If neither can be
written, each process compiles the kernels that it uses, which takes up to a few seconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final, TypeVar, cast

try:
    import numpy
    import pyarrow

    if find_spec("numba") is None:
        raise ImportError(name="numba")
except ImportError as missing:  # pragma: no cover - depends on the environment
    raise ImportError(
        f"columnar record batches need numpy, numba and pyarrow ({missing.name} is missing): "
        "pip install 'barnabas[columnar]'. Without them use barnabas.protocol.records.batch, record by record."
    ) from missing

F = TypeVar("F", bound=Callable[..., Any])

# Any: the kernels' signatures are more precise than the types of numpy and pyarrow
np: Any = numpy
pa: Any = pyarrow

__all__ = [
    "BYTES",
    "I32",
    "I64",
    "MUTABLE_BYTES",
    "OUT_HASHES",
    "OUT_I32",
    "OUT_I64",
    "OUT_U64",
    "PAIR",
    "U64",
    "copy_bytes",
    "kernel",
    "np",
    "pa",
    "scalar",
    "start_compiler",
]

# Types of arguments. C-contiguous arrays: those that a kernel writes are not readonly.
scalar: Final = "int64"
BYTES: Final = "Array(uint8, 1, 'C', readonly=True)"
MUTABLE_BYTES: Final = "uint8[::1]"
I64: Final = "Array(int64, 1, 'C', readonly=True)"
I32: Final = "Array(int32, 1, 'C', readonly=True)"
OUT_I64: Final = "int64[::1]"
OUT_I32: Final = "int32[::1]"
U64: Final = "uint64"
OUT_U64: Final = "uint64[::1]"
OUT_HASHES: Final = "uint64[:, ::1]"
PAIR: Final = "UniTuple(int64, 2)"


def kernel(arguments: tuple[str, ...] | None = None, returns: str = "") -> Callable[[F], F]:
    """Compile a function in nopython mode, without the GIL, cached on disk if possible, when it is first called.

    `arguments` and `returns` are types in numba's notation. Without `returns` numba infers the type; a kernel without
    `arguments` is compiled for those of each call, and is for other kernels to call.
    """
    signature = None if arguments is None else f"{returns}({', '.join(arguments)},)"

    def make(function: F) -> F:
        return cast("F", Kernel(function, functools.partial(_compile, function, signature)))

    return make


class Kernel:
    """A function that is compiled at its first call. Two threads at once compile it twice, with the same result."""

    def __init__(self, function: Callable[..., Any], build: Callable[[], Callable[..., Any]]) -> None:
        self._function = function
        self._build = build
        self._compiled: Callable[..., Any] | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        compiled = self._compiled
        if compiled is None:
            compiled = self.compile()
        return compiled(*arguments)

    def compile(self) -> Callable[..., Any]:
        """The compiled function, for numba's callers."""
        if self._compiled is None:
            names = self._function.__globals__
            for name in self._function.__code__.co_names:
                called = names.get(name)
                if isinstance(called, Kernel):
                    names[name] = called.compile()  # numba knows only its own functions
            self._compiled = self._build()
        return self._compiled


def _compile(function: Callable[..., Any], signature: str | None) -> Callable[..., Any]:
    import numba

    signatures = () if signature is None else (signature,)
    try:
        compiled: Callable[..., Any] = numba.njit(*signatures, nogil=True, cache=True)(function)
    except RuntimeError as error:
        if "cache" not in str(error):
            raise
        compiled = numba.njit(*signatures, nogil=True)(function)
    return compiled


@kernel((scalar,))
def _same(value: Any) -> Any:
    return value


def start_compiler() -> None:
    """Import and initialize numba, which takes half a second at the first kernel of a process. A child that the process
    forks has it, too."""
    cast("Kernel", _same).compile()


def _build_copy() -> Callable[..., Any]:
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator] # numba has no types
    def copy(_typing: Any, out: Any, out_at: Any, data: Any, at: Any, length: Any) -> Any:
        signature = types.void(out, types.int64, data, types.int64, types.int64)

        def generate(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
            target = context.make_array(call.args[0])(context, builder, arguments[0])
            source = context.make_array(call.args[2])(context, builder, arguments[2])
            to = builder.gep(target.data, [arguments[1]])
            cgutils.raw_memcpy(builder, to, builder.gep(source.data, [arguments[3]]), arguments[4], 1)
            return context.get_dummy_value()

        return signature, generate

    return cast("Callable[..., Any]", copy)


def _copy_bytes(out: Any, out_at: Any, data: Any, at: Any, length: Any) -> None:
    """`out[out_at : out_at + length] = data[at : at + length]` as one memcpy: nine times as fast as a loop over bytes.

    Only kernels can call it; `_build_copy` makes what they call. Nothing is checked: the calling kernel has checked
    both ranges.
    """


copy_bytes: Final = Kernel(_copy_bytes, _build_copy)
