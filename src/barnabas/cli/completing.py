"""Shell: completes a command line for bash, zsh and fish: commands, options, and names from the cluster.

The shell runs `barnabas` with the variable `_BARNABAS_COMPLETE` and the words of the line. Names are those of the
cluster that the line, the environment or the context says. A cluster that does not answer within `PATIENCE_S` completes
nothing, so that the shell does not hang.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

VARIABLE: Final = "_BARNABAS_COMPLETE"
SHELLS: Final = ("bash", "zsh", "fish")
PATIENCE_S: Final = 2.0
_NAMES_MAX: Final = 1_000


def script(shell: str) -> str:
    """What the shell evaluates to complete `barnabas`."""
    from typer._completion_shared import get_completion_script

    return get_completion_script(prog_name="barnabas", complete_var=VARIABLE, shell=shell)


def complete(build_app: Callable[[Iterable[str]], Any], nouns: Collection[str]) -> int:
    """Print what can follow the words of the line. Imports the noun of the line only, if it is complete."""
    from typer._completion_classes import completion_init
    from typer.completion import shell_complete
    from typer.main import get_command

    from barnabas.cli.app import given_noun

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a message in the middle of the user's line would destroy it
    completion_init()
    words = complete_words(os.environ)
    if len(words) > 2 and words[1] == "--context":
        os.environ["BARNABAS_CONTEXT"] = words[2]
    noun = given_noun(words)
    app = build_app((noun,) if noun in nouns else nouns)
    return shell_complete(get_command(app), {}, "barnabas", VARIABLE, os.environ[VARIABLE])


def complete_words(environment: Mapping[str, str]) -> list[str]:
    """The complete words of the line."""
    line = environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS", "")
    words = line.split()
    return words if line[-1:].isspace() else words[:-1]


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """Names of topics that begin with `incomplete`."""

    async def ask(admin: AsyncAdmin) -> list[str]:
        return [topic.name for topic in await admin.list_topics(include_internal=incomplete.startswith("_"))]

    return _names(context, incomplete, ask)


def groups(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of groups that begin with `incomplete`."""

    async def ask(admin: AsyncAdmin) -> list[str]:
        return [group.group_id for group in await admin.list_groups()]

    return _names(context, incomplete, ask)


def contexts(incomplete: str) -> list[str]:
    """Names of contexts that begin with `incomplete`."""
    from barnabas.cli.contexts import Contexts

    return _beginning(Contexts().names, incomplete)


def runs(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of the complete runs of a backup, the location of which is on the line."""

    async def ask() -> list[str]:
        from barnabas.cli.backup.location import open_backup

        given = context.params
        store = open_backup(given.get("location") or "", given.get("s3_endpoint"), given.get("s3_region"))
        return list((await store.run_names()).complete)

    return _beginning(_answer(ask), incomplete)


def subjects(context: typer.Context, incomplete: str) -> list[str]:
    """Subjects of the schema registry that begin with `incomplete`."""

    async def ask() -> list[str]:
        from barnabas.cli.records.registries import registry_settings
        from barnabas.registry.client import AsyncRegistryClient

        given = registry_settings(context.params.get("registry"), context.params.get("command_config"))
        async with AsyncRegistryClient.from_settings(given, timeout_ms=PATIENCE_S * 1000) as client:
            return await client.subjects()

    return _beginning(_answer(ask), incomplete)


def _names(context: typer.Context, incomplete: str, ask: Callable[[AsyncAdmin], Awaitable[list[str]]]) -> list[str]:
    async def main() -> list[str]:
        from barnabas.cli.session import read_properties, with_bootstrap
        from barnabas.client.admin import AsyncAdmin

        bootstrap = context.params.get("bootstrap_server") or ""
        settings = with_bootstrap(bootstrap, read_properties(context.params.get("command_config")))
        async with AsyncAdmin(settings) as admin:
            return await ask(admin)

    return _beginning(_answer(main), incomplete)


def _answer(ask: Callable[[], Awaitable[list[str]]]) -> list[str]:
    import asyncio

    async def main() -> list[str]:
        async with asyncio.timeout(PATIENCE_S):
            return await ask()

    try:
        return asyncio.run(main())
    except (Exception, SystemExit):  # noqa: BLE001 - whatever is wrong, the user has not finished the line
        return []


def _beginning(names: Sequence[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))[:_NAMES_MAX]
