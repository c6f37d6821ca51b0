"""Shell: shows the errors of this package to the person who started the query.

Spark reports an exception of a data source as the Python traceback of one of its worker processes, inside a Java
exception. `readable_errors` keeps the frames of this package and of the client out of that traceback, because they do
not help with a wrong option or an unreachable broker, and writes the message as one line to the standard error first.
In local and client mode, the line is on the user's terminal, above Spark's report.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

from barnabas.core.errors import BarnabasError

F = TypeVar("F", bound=Callable[..., Any])


def readable_errors(function: F) -> F:
    """Decorates a function, or a generator function, that Spark calls. Exceptions other than BarnabasError are faults
    of the program, and keep their traceback.
    """
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Any:
            try:
                yield from function(*args, **kwargs)
            except BarnabasError as error:
                _print(error)
                raise error.with_traceback(None) from None

        return cast("F", generate)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BarnabasError as error:
            _print(error)
            raise error.with_traceback(None) from None

    return cast("F", call)


def _print(error: BarnabasError) -> None:
    print(f"barnabas: {type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
