"""Machine: finds what is wrong with the command lines in the documentation, without running them.

A command of `barnabas` and a tool of Kafka must exist and have the options that are given. A target of `make`, a module
of `python -m`, a path that pytest runs, and an extra of `pip install` must exist.
"""

from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from functools import cache
from importlib import import_module
from typing import Any, Final

from typer.main import get_command

from barnabas.cli.app import build_app
from tests.golden.pages.code_blocks import ROOT

_NUMBER: Final = re.compile(r"-\d")
_OPTION: Final = re.compile(r"-{1,2}[A-Za-z]")
_VARIABLE: Final = re.compile(r"\w+=")
_TARGET: Final = re.compile(r"^([\w-]+):(?:[^=]|$)", re.MULTILINE)
_WRAPPERS: Final = frozenset({"sudo", "time", "exec"})


def problems_of_block(text: str) -> list[str] | None:
    """What is wrong with the lines of a block; None if a line is no command that can be checked."""
    lines = text.replace("\\\n", " ").splitlines()
    found = [problems_of_line(line) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not found or None in found:
        return None
    return [problem for problems in found for problem in problems or ()]


def problems_of_line(line: str) -> list[str] | None:
    """What is wrong with one line; None if it has a command that cannot be checked."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return None
    problems: list[str] = []
    command: list[str] = []
    for word in (*words, ";"):
        if word.endswith(";") and word != ";":
            command.append(word[:-1])
            word = ";"
        if word not in ("|", "&&", ";", "&", "||"):
            command.append(word)
            continue
        found = _problems_of_command(command) if command else []
        if found is None:
            return None
        problems += found
        command = []
    return problems


def _problems_of_command(words: list[str]) -> list[str] | None:
    while words and (_VARIABLE.match(words[0]) or words[0] in _WRAPPERS):
        words = words[1:]
    if not words:
        return []
    program, rest = words[0].rpartition("/")[2], words[1:]
    if program == "barnabas":
        return _barnabas(rest)
    if program in _scripts() and program.startswith(("kafka-", "connect-")):
        return _kafka_tool(program, rest)
    match program:
        case "make":
            known = set(_TARGET.findall((ROOT / "Makefile").read_text()))
            return [f"make has no target {word}" for word in rest if "=" not in word and word not in known]
        case "python" | "python3" if rest[:1] == ["-m"]:
            return _module(rest[1])
        case "pytest":
            paths = [word for word in rest if "/" in word and not word.startswith("-")]
            return [f"{path} does not exist" for path in paths if not (ROOT / path).exists()]
        case "pip" if rest[:1] == ["install"]:
            return _extras(rest)
        case "echo" | "cat" | "eval":
            return []
        case _:
            return None


def _module(name: str) -> list[str]:
    places = (ROOT / "src", ROOT)
    path = name.replace(".", "/")
    exists = any((place / f"{path}.py").exists() or (place / path).is_dir() for place in places)
    return [] if exists or name in ("venv", "pip") else [f"there is no module {name}"]


def _extras(words: list[str]) -> list[str]:
    known = _project()["optional-dependencies"]
    wanted = re.findall(r"barnabas\[([\w,]+)\]", " ".join(words))
    return [f"there is no extra {extra}" for one in wanted for extra in one.split(",") if extra not in known]


def _barnabas(words: list[str]) -> list[str]:
    if words[:1] == ["--context"]:
        words = words[2:]
    command = _root()
    path = ["barnabas"]
    while getattr(command, "commands", None) and words and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return [f"{' '.join(path)} has no command {words[0]}"]
        command = command.commands[words[0]]
        path.append(words[0])
        words = words[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return _unknown(" ".join(path), words, known | {"--help"})


def _kafka_tool(program: str, words: list[str]) -> list[str]:
    module = import_module(_scripts()[program].partition(":")[0])
    build = getattr(module, "build_parser", None)
    if build is None:  # the tool passes its arguments on
        return []
    return _unknown(program, words, _options_of(build()))


def _options_of(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a parser and of its subcommands."""
    known: set[str] = set()
    for action in parser._actions:
        known.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                known |= _options_of(child)
    return known


def _unknown(command: str, words: list[str], known: set[str]) -> list[str]:
    given = (word.partition("=")[0] for word in words if _OPTION.match(word) and not _NUMBER.match(word))
    return [f"{command} has no option {option}" for option in given if option not in known]


@cache
def _root() -> Any:
    return get_command(build_app())


@cache
def _project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _scripts() -> dict[str, str]:
    scripts: dict[str, str] = _project()["scripts"]
    return scripts
