"""Shell: `barnabas completion`: prints what a shell needs to complete command lines."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from barnabas.cli.output import EXIT_USAGE, fail


def completion(shell: Annotated[str, typer.Argument(help="bash, zsh or fish.", metavar="SHELL")]) -> None:
    """Print a script that lets a shell complete commands, options, topics, groups, subjects and contexts.

    Example: `eval "$(barnabas completion bash)"`

    Put that line into `~/.bashrc`, or `eval "$(barnabas completion zsh)"` into `~/.zshrc` behind `compinit`; for fish,
    `barnabas completion fish > ~/.config/fish/completions/barnabas.fish`.
    """
    from barnabas.cli.completing import SHELLS, script

    if shell not in SHELLS:
        fail(f"{shell!r} is not a shell that can be completed: {', '.join(SHELLS)}", EXIT_USAGE)
    sys.stdout.write(script(shell) + "\n")
