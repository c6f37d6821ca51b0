"""Shell: the output of the commands: tables for people, JSON for programs, one line for an error.

Exit codes: 0 success; 1 a request was rejected or failed; 2 wrong usage; 3 no broker answered; 130 interrupted.
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
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None, empty: str = "no rows"
) -> None:
    """Print a table.

    A column whose name ends in '>' is aligned to the right, and its large numbers have thousands separators. Numbers in
    other columns are names, which users copy, and have no separators. If stdout is not a terminal, values are not
    shortened.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text  # brackets in a value are not markup

    console = Console(soft_wrap=not sys.stdout.isatty())
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    if not sys.stdout.isatty():
        console.width = 10_000
    for column in columns:
        table.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    count = 0
    for row in rows:
        cells = zip(columns, row, strict=False)  # a row may have fewer cells than there are columns
        table.add_row(*[Text(_cell(value, commas=name.endswith(">"))) for name, value in cells])
        count += 1
    if count:
        console.print(table)
    else:
        console.print(f"(no {title})" if title else f"({empty})", style="dim")


def _cell(value: object, *, commas: bool) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if commas and abs(value) >= 10_000 else str(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(str(v) for v in value)
    return str(value)


def size_text(size: int) -> str:
    """A number of bytes with a unit, such as `1.5 MiB`."""
    from barnabas.client.explanations import words  # `barnabas serve` imports this module, and not the client

    return words.size_text(size)


def note(text: str) -> None:
    """Print a message for people on stderr, so that stdout has only data."""
    sys.stderr.write(text + "\n")


def fail(text: str, code: int = EXIT_FAILED) -> NoReturn:
    """Print the error on stderr and exit with `code`."""
    sys.stderr.write(f"error: {text}\n")
    raise SystemExit(code)


def confirm(yes: bool, question: str) -> None:
    """Ask the user and exit unless the answer is yes. If stdin is not a terminal, exit with a usage error unless --yes
    was given.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} Standard input is not a terminal: give --yes.", EXIT_USAGE)
    import typer

    if not typer.confirm(question, err=True):
        fail("nothing was deleted")


def emit(line: str) -> None:
    """Print one line of data on stdout. Exits without an error message if the reader has closed the pipe (`... |
    head`).
    """
    try:
        sys.stdout.write(line + "\n")
    except BrokenPipeError:
        discard_stdout()
        raise SystemExit(0) from None


def discard_stdout() -> None:
    """Redirect stdout to os.devnull after its reader has closed the pipe, so that Python's flush at exit raises no
    error.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _flush_at_exit() -> None:
    """Flush stdout at exit. Short output is still in Python's buffer then, and its reader may have closed the pipe."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
    except ValueError:
        pass  # stdout is closed already


atexit.register(_flush_at_exit)
