"""Shell: runs a command's coroutine against a cluster, and turns what can go wrong into a line and an exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.cli.output import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNREACHABLE, EXIT_USAGE, fail

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
ANSWER_MS: Final = 3_000
"""For how long somebody is asked who may be down."""


def run(main: Callable[[], Awaitable[T]]) -> T:
    """`asyncio.run` on uvloop where there is one, with errors as exit codes (see `output`)."""
    from barnabas.client.errors import BrokerUnreachableError
    from barnabas.core.errors import BarnabasError

    async def entry() -> T:
        return await main()

    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            return runner.run(entry())
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except BrokerUnreachableError as error:
        fail(str(error), EXIT_UNREACHABLE)
    except BarnabasError as error:
        fail(str(error), EXIT_FAILED)
    except (ValueError, FileNotFoundError, PermissionError) as error:
        fail(str(error), EXIT_USAGE)


def run_admin(
    bootstrap_servers: str,
    command: Callable[[AsyncAdmin], Awaitable[T]],
    settings: Mapping[str, object] | None = None,
) -> T:
    """Opens an admin client, runs `command` with it, closes it."""

    async def main() -> T:
        from barnabas.client.admin import AsyncAdmin

        async with AsyncAdmin({"bootstrap.servers": bootstrap_servers, **(settings or {})}) as admin:
            await admin.cluster.reach()
            return await command(admin)

    return run(main)


async def answer_of(asked: Awaitable[T]) -> T | None:
    """None if whoever is asked does not answer."""
    from barnabas.client.errors import BrokerUnreachableError, RequestTimeoutError

    try:
        return await asked
    except (BrokerUnreachableError, RequestTimeoutError):
        return None


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def read_properties(path: str | None) -> dict[str, object]:
    """The settings of a `.properties` file as Kafka's `--command-config` takes them; none without a path."""
    if path is None:
        return {}
    from pathlib import Path

    from barnabas.core.properties import parse_properties

    try:
        return dict(parse_properties(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        fail(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}", EXIT_USAGE)


def parse_settings(pairs: list[str] | None) -> dict[str, str]:
    """`name=value` arguments as a dict."""
    settings = {}
    for pair in pairs or []:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            fail(f"{pair!r} is not a setting: write name=value", EXIT_USAGE)
        settings[name.strip()] = value.strip()
    return settings
