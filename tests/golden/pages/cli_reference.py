"""Codec: the commands of `barnabas` in the code -> docs/reference/cli.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from typer.main import get_command

from barnabas.cli.app import NOUNS, build_app

COMMON: Final = ("--bootstrap-server", "--json", "--command-config")
"""Options that nearly all commands have, which docs/reference/cli.md explains once."""


def render_commands() -> str:
    """A section for each noun, and a table of arguments and options for each of its commands."""
    lines: list[str] = []
    root = get_command(build_app())
    for name, command in _children(root):
        lines += [f"## {name}", "", *_command(("barnabas", name), command)]
        for verb, below in _children(command):
            lines += [f"### {name} {verb}", "", *_command(("barnabas", name, verb), below)]
    return "\n".join(lines)


def render_options(noun: str) -> str:
    """The table of the options of a noun that is a command by itself."""
    (command,) = (command for name, command in _children(get_command(build_app((noun,)))) if name == noun)
    rows = [_row(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
    return "\n".join(["| Option | Default | Meaning |", "|---|---|---|", *rows]) + "\n"


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command of `barnabas` with the words that call it."""
    for name, command in _children(get_command(build_app())):
        yield (name,), command
        for verb, below in _children(command):
            yield (name, verb), below


def _children(command: Any) -> list[tuple[str, Any]]:
    """The commands below a command, nouns in the order of `barnabas --help`."""
    order = {noun: place for place, noun in enumerate(NOUNS)}
    below = getattr(command, "commands", {})
    found = [(name, child) for name, child in below.items() if not child.hidden]
    return sorted(found, key=lambda pair: order.get(pair[0], len(order)))


def _command(words: tuple[str, ...], command: Any) -> list[str]:
    lines = [*_help(command.help or ""), ""]
    if hasattr(command, "commands"):
        return lines
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    rows = [_row(parameter) for parameter in shown if parameter.opts[0] not in COMMON]
    common = [f"`{parameter.opts[0]}`" for parameter in shown if parameter.opts[0] in COMMON]
    lines += [f"Usage: `{' '.join([*words, *_usage(command)])}`", ""]
    if rows:
        lines += ["| Argument or option | Default | Meaning |", "|---|---|---|", *rows, ""]
    if common:
        lines += [f"Common options: {', '.join(common)}.", ""]
    return lines


def _help(text: str) -> list[str]:
    """The help text; typer's marks of a paragraph that is not wrapped are left out."""
    return [line.strip() for line in text.replace("\b", "").replace("\f", "").strip().splitlines()]


def _usage(command: Any) -> list[str]:
    words = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            name = _argument_name(parameter) + ("..." if parameter.nargs == -1 or parameter.multiple else "")
            words.append(name if parameter.required else f"[{name}]")
    return ["[OPTIONS]", *words]


def _argument_name(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name).upper().strip("[].")


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{_argument_name(parameter)}`"
    else:
        name = ", ".join(f"`{one}`" for one in (*parameter.opts, *parameter.secondary_opts))
        if not parameter.is_flag and not parameter.count:
            name += f" {_cell(_value_name(parameter))}"
    return f"| {name} | {_default(parameter)} | {_cell(getattr(parameter, 'help', '') or '')} |"


def _value_name(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    if hasattr(parameter, "type_descriptor"):  # Typer 0.29 and later
        return "N" if parameter.type_descriptor.annotation in (int, float, list[int]) else "TEXT"
    return "N" if parameter.type.name.lower().startswith(("int", "float")) else "TEXT"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "*required*"
    value = parameter.default
    if value is None or callable(value) or value in ("", (), []) or isinstance(value, bool):
        return ""
    return f"`{getattr(value, 'value', value)}`"


def _cell(text: str) -> str:
    flat = re.sub(r"\s+", " ", text).strip()
    return flat.replace("|", "\\|").replace("<", "&lt;")
