"""Runs a scripted conversation with a group coordinator, and returns the script with the actual output.

A script is a list of steps: commands, a line of dashes, and the output:

    join a client=c1 protocols=range
    ----
    a: MEMBER_ID_REQUIRED member=@a

`a` names a client; `@a` stands for the client's last member id. Commands are listed in `COMMANDS`; options are
`name=value`. The output has the responses in order of arrival, then the appended records. Time is virtual and advances
with `wait` only. The production coordinator uses a partition in memory.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from tests.golden.coordination import (
    commands_classic,
    commands_consumer,
    commands_groups,
    commands_offsets,
    commands_stage,
)
from tests.golden.coordination.stage import Stage, settle
from tests.unit.server.coordination.kit import run_virtual


def replay_script(text: str) -> str:
    """The script with its actual output."""
    return run_virtual(_run(text))


async def _run(text: str) -> str:
    async with Stage() as stage:
        out = []
        for block in re.split(r"\n\n+", text.strip()):
            lines = block.splitlines()
            comments = [line for line in lines if line.startswith("#")]
            commands = [line for line in lines[: lines.index("----") if "----" in lines else None] if line[:1] != "#"]
            out.append("\n".join(comments + commands))
            if commands:
                for command in commands:
                    await perform(stage, command)
                out[-1] += "\n----\n" + "\n".join(stage.take_events())
        return "\n\n".join(part.rstrip("\n") for part in out) + "\n"


async def perform(stage: Stage, line: str) -> None:
    """Run one command of a script."""
    verb, *words = line.split()
    positional = [word for word in words if "=" not in word]
    options = dict(word.split("=", 1) for word in words if "=" in word)
    await COMMANDS[verb](stage, positional, options)
    await settle()


COMMANDS: dict[str, Callable[[Stage, list[str], dict[str, str]], Awaitable[None]]] = {
    "beat": commands_classic.beat,
    "commit": commands_offsets.commit,
    "config": commands_stage.config,
    "delete": commands_groups.delete,
    "delete-offsets": commands_offsets.delete_offsets,
    "describe": commands_groups.describe,
    "describe-consumer": commands_consumer.describe_consumer,
    "end-txn": commands_offsets.end_txn,
    "fail": commands_stage.fail,
    "fetch": commands_offsets.fetch,
    "hold": commands_stage.hold,
    "join": commands_classic.join,
    "leave": commands_classic.leave,
    "list": commands_groups.list_all,
    "poll": commands_consumer.poll,
    "release": commands_stage.release,
    "resign": commands_stage.resign,
    "restart": commands_stage.restart,
    "sync": commands_classic.sync,
    "topics": commands_stage.topics,
    "txn-commit": commands_offsets.txn_commit,
    "wait": commands_stage.wait,
    "why": commands_groups.why,
}
