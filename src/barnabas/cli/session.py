"""Shell: runs a command's coroutine against a cluster, and converts exceptions to an error line and an exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.cli.output import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNREACHABLE, EXIT_USAGE, fail

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = ""
"""No addresses were given: those of the file of `--command-config`, of the context, or LOCAL_BOOTSTRAP are used."""
LOCAL_BOOTSTRAP: Final = "127.0.0.1:9092"
ANSWER_TIMEOUT_MS: Final = 3_000
"""The timeout of a request to a broker that may be down."""


def run(main: Callable[[], Awaitable[T]]) -> T:
    """`asyncio.run`, on uvloop if it is installed. Exceptions become exit codes (see `output`)."""
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
    """Open an admin client, run `command` with it, and close the client."""

    async def main() -> T:
        from barnabas.client.admin import AsyncAdmin

        async with AsyncAdmin(with_bootstrap(bootstrap_servers, settings or {})) as admin:
            await admin.cluster.reach()
            return await command(admin)

    return run(main)


def with_bootstrap(bootstrap_servers: str, settings: Mapping[str, object]) -> dict[str, object]:
    """The settings of a file with the addresses of the command line, which precede the file's. Without either, the
    settings of the context that the user has chosen come first (see `contexts`). Raises ValueError."""
    if bootstrap_servers:
        return {**settings, "bootstrap.servers": bootstrap_servers}
    if "bootstrap.servers" in settings:
        return dict(settings)
    from barnabas.cli.contexts import REGISTRY_PREFIXES, context_settings

    chosen = {name: value for name, value in context_settings().items() if not name.startswith(REGISTRY_PREFIXES)}
    return {"bootstrap.servers": LOCAL_BOOTSTRAP, **chosen, **settings}


async def answer_of(request: Awaitable[T]) -> T | None:
    """The result of the request; None if the broker does not answer within ANSWER_TIMEOUT_MS."""
    from barnabas.client.errors import BrokerUnreachableError, RequestTimeoutError

    try:
        return await request
    except (BrokerUnreachableError, RequestTimeoutError):
        return None


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def read_properties(path: str | None) -> dict[str, object]:
    """The settings in a `.properties` file, as Kafka's `--command-config` reads them; empty without a path."""
    if path is None:
        return {}
    from pathlib import Path

    from barnabas.core.properties import parse_properties

    try:
        return dict(parse_properties(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        fail(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}", EXIT_USAGE)


def parse_settings(pairs: list[str] | None) -> dict[str, str]:
    """Parse `name=value` arguments into a dict."""
    settings = {}
    for pair in pairs or []:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            fail(f"{pair!r} is not a setting: write name=value", EXIT_USAGE)
        settings[name.strip()] = value.strip()
    return settings
