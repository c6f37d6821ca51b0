"""Machine: the commands of the metadata shell (ls, cat, cd, pwd, find, tree, man, help) over a tree of metadata.

Paths are absolute, or relative to the working directory; `.`, `..`, `*`, `?`, `{a,b}` and `\\` mean what they mean in
a shell. The messages are those of Kafka's shell.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from barnabas.cli.kafka.cluster.metadata_tree import Directory, Node

COMMANDS: Final = {
    "cat": ("targets [targets ...]", "Show the contents of metadata files."),
    "cd": ("[target]", "Set the current working directory."),
    "exit": ("", "Exit the metadata shell."),
    "find": ("[paths ...]", "Search for nodes in the directory hierarchy."),
    "help": ("", "Display this help message."),
    "history": ("[numEntriesToShow]", "Print command history."),
    "ls": ("[targets ...]", "List metadata nodes."),
    "man": ("cmd", "Show the help text for a specific command."),
    "pwd": ("", "Print the current working directory."),
    "tree": ("targets [targets ...]", "Show the contents of metadata nodes in a tree structure."),
}
"""The arguments and the description of each command."""
SHELL_ONLY: Final = ("cd", "exit", "help", "history", "man", "pwd")
"""The commands that need a prompt."""
_ARGUMENTS: Final = {
    "cat": (1, None),
    "tree": (1, None),
    "ls": (0, None),
    "find": (0, None),
    "cd": (0, 1),
    "man": (1, 1),
}
"""The least and the largest number of arguments; without a row: none."""


class MetadataShell:
    """`run` yields the lines that a command prints. `width` is that of the screen; None prints one name in a line."""

    def __init__(self, root: Directory, *, width: int | None = None) -> None:
        self._root = root
        self._width = width
        self._path: tuple[str, ...] = ()
        self.failed = False
        """Whether a command or a path was wrong."""

    @property
    def working_directory(self) -> str:
        return "/" + "/".join(self._path)

    def run(self, words: Sequence[str]) -> Iterator[str]:
        """The lines of one command. A wrong command or path is a line, too."""
        if not words:
            return
        command, *arguments = words
        if command not in COMMANDS:
            yield self._error(f"Unknown command specified: {command}. Type help to get a list of commands.")
            return
        least, most = _ARGUMENTS.get(command, (0, 0))
        if len(arguments) < least or (most is not None and len(arguments) > most):
            yield self._error(f"usage: {command} {COMMANDS[command][0]}".rstrip())
            return
        runs: dict[str, Callable[[Sequence[str]], Iterator[str]]] = {
            "cat": self._cat, "cd": self._cd, "find": self._find, "help": self._help, "ls": self._ls,
            "man": self._man, "pwd": self._pwd, "tree": self._tree,
        }  # fmt: skip
        yield from runs[command](arguments)

    def complete(self, text: str) -> list[str]:
        """The paths that begin with `text`; directories end with a slash."""
        folder, slash, start = text.rpartition("/")
        found = []
        for _, node in self._matches(folder + slash or "."):
            if isinstance(node, Directory):
                for name in node.names():
                    if name.startswith(start):
                        child = node.child(name)
                        found.append(f"{folder}{slash}{name}{'/' if isinstance(child, Directory) else ''}")
        return found

    def _error(self, text: str) -> str:
        self.failed = True
        return text

    def _matches(self, path: str) -> list[tuple[tuple[str, ...], Node]]:
        """The nodes that a path with wildcards stands for, with their absolute paths."""
        parts: list[str] = [] if path.startswith("/") else [re.escape(one) for one in self._path]
        for part in path.split("/"):
            if part == "..":
                del parts[-1:]
            elif part not in ("", "."):
                parts.append(_pattern(part))
        found: list[tuple[tuple[str, ...], Node]] = [((), self._root)]
        for pattern in parts:
            wanted = re.compile(pattern, re.DOTALL)
            found = [
                ((*where, name), child)
                for where, node in found
                if isinstance(node, Directory)
                for name in node.names()
                if wanted.fullmatch(name) and (child := node.child(name)) is not None
            ]
        return found

    def _ls(self, targets: Sequence[str]) -> Iterator[str]:
        files: list[str] = []
        folders: list[tuple[str, list[str]]] = []
        for target in targets or (".",):
            found = self._matches(target)
            if not found:
                yield self._error(f"ls: {target}: no such file or directory.")
            for where, node in found:
                name = where[-1] if where else "/"
                if isinstance(node, Directory):
                    folders.append((name, node.names()))
                else:
                    files.append(name)
        yield from columns(files, self._width)
        titled = bool(files) or len(folders) > 1
        first = not files
        for name, names in folders:
            if titled and names:
                if not first:
                    yield ""
                yield f"{name}:"
            first = False
            yield from columns(names, self._width)

    def _cat(self, targets: Sequence[str]) -> Iterator[str]:
        for target in targets:
            found = self._matches(target)
            if not found:
                yield self._error(f"cat: {target}: No such file or directory.")
            for _, node in found:
                yield self._error(f"cat: {target}: Is a directory") if isinstance(node, Directory) else node

    def _tree(self, targets: Sequence[str]) -> Iterator[str]:
        for target in targets:
            found = self._matches(target)
            if not found:
                yield self._error(f"tree: {target}: No such file or directory.")
            for _, node in found:
                yield from _drawn(node, "")

    def _find(self, paths: Sequence[str]) -> Iterator[str]:
        for path in paths or (".",):
            found = self._matches(path)
            if not found:
                yield self._error(f"find: {path}: no such file or directory.")
            for where, node in found:
                yield from _found(
                    path if path in (".", "/") else path if len(found) == 1 else "/" + "/".join(where), node
                )

    def _cd(self, targets: Sequence[str]) -> Iterator[str]:
        target = targets[0] if targets else "/"
        found = self._matches(target)
        if not found:
            yield self._error(f"cd: {target}: no such directory.")
        elif isinstance(found[-1][1], Directory):
            self._path = found[-1][0]
        else:
            yield self._error(f"cd: {target}: not a directory.")

    def _pwd(self, _: Sequence[str]) -> Iterator[str]:
        yield self.working_directory

    def _man(self, names: Sequence[str]) -> Iterator[str]:
        (name,) = names
        if name not in COMMANDS:
            yield self._error(f"man: unknown command {name}. Type help to get a list of commands.")
            return
        arguments, description = COMMANDS[name]
        yield from (f"{name}: {description}", "", f"usage: {name} {arguments}".rstrip())

    def _help(self, _: Sequence[str]) -> Iterator[str]:
        yield from ("Welcome to the metadata shell.", "")
        for name, (arguments, description) in COMMANDS.items():
            yield f"  {f'{name} {arguments}'.rstrip():<30}{description}"


def _pattern(part: str) -> str:
    """One component of a path with wildcards as a regular expression."""
    out, depth, place = "", 0, 0
    while place < len(part):
        char = part[place]
        if char == "\\" and place + 1 < len(part):
            place += 1
            out += re.escape(part[place])
        elif char == "*":
            out += ".*"
        elif char == "?":
            out += "."
        elif char == "{" and "}" in part[place:]:
            out, depth = out + "(?:", depth + 1
        elif char == "}" and depth:
            out, depth = out + ")", depth - 1
        elif char == "," and depth:
            out += "|"
        else:
            out += re.escape(char)
        place += 1
    return out + ")" * depth


def _drawn(node: Node, indent: str) -> Iterator[str]:
    if isinstance(node, str):
        yield indent + node
        return
    for name in node.names():
        yield f"{indent}{name}:"
        child = node.child(name)
        assert child is not None
        yield from _drawn(child, indent + "  ")


def _found(path: str, node: Node) -> Iterator[str]:
    yield path
    if isinstance(node, Directory):
        for name in node.names():
            child = node.child(name)
            assert child is not None
            yield from _found(f"{path.rstrip('/')}/{name}", child)


def columns(names: Sequence[str], width: int | None) -> Iterator[str]:
    """The names in as many columns as fit, one below the other; one column without a width."""
    for count in range(min(len(names), (width or 0) // 4), 1, -1):
        high = -(-len(names) // count)
        parts = [names[start : start + high] for start in range(0, len(names), high)]
        widths = [max(map(len, part)) + 2 for part in parts]
        if len(parts) == count and sum(widths) <= (width or 0):
            for row in itertools.zip_longest(*parts, fillvalue=""):
                yield "".join(name.ljust(wide) for name, wide in zip(row, widths, strict=True)).rstrip()
            return
    yield from names
