"""Shell: what the commands print: tables for people, JSON for programs, one clear line for an error.

Exit codes: 0 done; 1 the cluster refused or something failed; 2 the command line was wrong; 3 no broker answered;
130 interrupted.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_INTERRUPTED = 130


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A table; columns whose name ends in '>' are aligned to the right, and large numbers in them have commas; those in
    others are names, to be copied. Piped output keeps whole values."""
    from rich.console import Console
    from rich.table import Table

    console = Console(soft_wrap=not sys.stdout.isatty())
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    if not sys.stdout.isatty():
        console.width = 10_000
    for column in columns:
        table.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    count = 0
    for row in rows:
        cells = zip(columns, row, strict=False)  # a row may end early
        table.add_row(*[_cell(value, commas=name.endswith(">")) for name, value in cells])
        count += 1
    if count:
        console.print(table)
    else:
        console.print(f"(no {title or 'rows'})" if title else "(nothing to show)", style="dim")


def _cell(value: object, *, commas: bool) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if commas and abs(value) >= 10_000 else str(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(str(v) for v in value)
    return str(value)


def size_text(size: int) -> str:
    """Bytes as people read them."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def note(text: str) -> None:
    """A line for people, on stderr, so that stdout stays data."""
    sys.stderr.write(text + "\n")


def fail(text: str, code: int = EXIT_FAILED) -> NoReturn:
    """Says what went wrong and leaves."""
    sys.stderr.write(f"error: {text}\n")
    raise SystemExit(code)


def confirm(yes: bool, question: str) -> None:
    """Leaves unless the answer is yes. Where nobody can be asked, --yes must have been given."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} Nobody can be asked here: give --yes.", EXIT_USAGE)
    import typer

    if not typer.confirm(question, err=True):
        fail("nothing was deleted")


def emit(line: str) -> None:
    """One line of data on stdout. Leaves quietly when nobody reads it any more (`... | head`)."""
    try:
        sys.stdout.write(line + "\n")
    except BrokenPipeError:
        leave_pipe()
        raise SystemExit(0) from None


def leave_pipe() -> None:
    """Nobody reads stdout any more: what Python would still flush there at exit goes nowhere, without complaint."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _flush_at_exit() -> None:
    """Short output is still in Python's buffer when the command is done; its reader may be gone by then."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        leave_pipe()
    except ValueError:
        pass  # closed already


atexit.register(_flush_at_exit)
