"""Codec: a writer of Python source that records, for every line, the message field that the line reads or writes.

The compiled codecs do no bookkeeping for error messages. When one fails, the number of the failing line gives the path
of the field, and the loop variables in the traceback's frame give the array indexes in the path.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any


class Compiled:
    """A compiled function, its source, and the field path of every line."""

    __slots__ = ("paths", "run", "source")

    def __init__(self, run: Callable[..., Any], source: str, paths: list[str]) -> None:
        self.run = run
        self.source = source
        self.paths = paths

    def where(self, traceback: TracebackType | None) -> str:
        """The path of the field at which the function failed, such as `topics[3].partitions[0].records`."""
        code = self.run.__code__
        while traceback is not None and traceback.tb_frame.f_code is not code:
            traceback = traceback.tb_next
        if traceback is None:
            return ""
        path = self.paths[traceback.tb_lineno - 1]
        for name, value in traceback.tb_frame.f_locals.items():
            if name.startswith("i_"):
                path = path.replace(f"[{name}]", f"[{value}]")
        return path


class Source:
    """The lines of a function under construction, and the constants that they use."""

    def __init__(self, signature: str) -> None:
        self.lines = [signature]
        self.paths = [""]
        self.scope: dict[str, Any] = {}
        self._depth = 1
        self._path: list[str] = []
        self._counter = 0

    @property
    def path(self) -> str:
        """The path of the current field."""
        return "".join(self._path).lstrip(".")

    def line(self, text: str, path: str | None = None) -> None:
        self.lines.append("    " * self._depth + text)
        self.paths.append(self.path if path is None else path)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def at(self, *steps: str) -> Iterator[None]:
        """A context manager. The lines that are added in its `with` block belong to the field at the current path plus
        `steps`.
        """
        self._path.extend(steps)
        yield
        del self._path[-len(steps) :]

    def name(self, prefix: str) -> str:
        """A new variable name."""
        self._counter += 1
        return f"{prefix}_{self._counter}"

    def constant(self, prefix: str, value: object) -> str:
        """The name of a constant for a value that cannot be written as a literal."""
        for name, known in self.scope.items():
            if known is value:
                return name
        name = self.name(prefix)
        self.scope[name] = value
        return name

    def unpack(self, formats: str) -> str:
        """The name, in the generated code, of the `unpack_from` method of a struct with these format codes."""
        name = "unpack_" + formats.replace("?", "t")
        self.scope.setdefault(name, struct.Struct(">" + formats).unpack_from)
        return name

    def pack(self, formats: str) -> str:
        """The name, in the generated code, of the `pack` method of a struct with these format codes."""
        name = "pack_" + formats.replace("?", "t")
        self.scope.setdefault(name, struct.Struct(">" + formats).pack)
        return name

    def compile(self, function: str, filename: str) -> Compiled:
        text = "\n".join(self.lines) + "\n"
        scope = dict(self.scope)
        exec(compile(text, filename, "exec"), scope)  # the source is built from our own schemas, never from input
        return Compiled(scope[function], text, self.paths)
