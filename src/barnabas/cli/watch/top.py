"""Shell: `barnabas top`: a live view of a cluster in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from barnabas.cli.options import Bootstrap, CommandConfig, Json
from barnabas.cli.output import EXIT_USAGE, fail, print_json, print_table
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin
from barnabas.cli.watch.top_rows import TopOrder, TopRows, build_rows
from barnabas.cli.watch.top_view import headline, tables, view

if TYPE_CHECKING:
    from rich.console import Group

    from barnabas.client.admin import AsyncAdmin
    from barnabas.console.sampling.sampler import ClusterSample, Sampler

_KEYS: Final = "q quit   s order: {order}   i internal topics   space {pause}"


def top(
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.5, help="Seconds between two samples.")] = 2.0,
    order: Annotated[TopOrder, typer.Option("--order", "-s", help="What comes first.")] = TopOrder.RATE,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Take two samples, print the tables and end.")] = False,
    json: Json = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Watch the brokers, the busiest topics, and the groups with the most lag.

    Keys: `q` quits, `s` changes the order, `i` shows internal topics, space pauses. In a large cluster the interval
    becomes longer: at most 1,000 partitions are measured in a second.

    Example: `barnabas top --interval 5`
    """
    is_live = not (once or json)
    if is_live and not sys.stdout.isatty():
        fail("standard output is not a terminal: give --once, or --json", EXIT_USAGE)

    async def command(admin: AsyncAdmin) -> None:
        from barnabas.console.sampling.sampler import Sampler
        from barnabas.console.settings import SamplingLimits
        from barnabas.core.clock import SystemClock

        sampler = Sampler(admin, SamplingLimits(interval_s=interval, samples=2), SystemClock())
        if is_live:
            await _Live(sampler, order, internal=internal).run()
            return
        await sampler.take()
        before = sampler.sample
        await asyncio.sleep(interval)
        await sampler.take()
        rows = build_rows(before, sampler.sample, order, internal=internal)
        if json:
            import msgspec

            print_json(msgspec.to_builtins(rows))
        else:
            _print(rows)

    run_admin(bootstrap_server, command, read_properties(command_config))


class _Live:
    """The view on the terminal, until the user quits."""

    def __init__(self, sampler: Sampler, order: TopOrder, *, internal: bool) -> None:
        self._sampler = sampler
        self._order = order
        self._internal = internal
        self._is_paused = False
        self._before: ClusterSample | None = None
        self._shown: ClusterSample | None = None
        self._changed = asyncio.Event()
        self._quit = asyncio.Event()

    async def run(self) -> None:
        from rich.live import Live

        measuring = asyncio.ensure_future(self._sampler.run())
        try:
            with Live(screen=True, auto_refresh=False) as live, _keys(self._on_key):
                while not self._quit.is_set():
                    live.update(self._view(live.console.height), refresh=True)
                    self._changed.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.5):
                            await self._changed.wait()
                    if measuring.done():
                        measuring.result()  # raises what has ended it
        finally:
            measuring.cancel()
            await asyncio.gather(measuring, return_exceptions=True)

    def _on_key(self, key: str) -> None:
        match key:
            case "q" | "Q" | "\x03" | "\x1b":
                self._quit.set()
            case "s":
                self._order = self._order.next()
            case "i":
                self._internal = not self._internal
            case " ":
                self._is_paused = not self._is_paused
        self._changed.set()

    def _view(self, height: int) -> Group:
        newest = self._sampler.sample
        if not self._is_paused and newest.at_ms and newest is not self._shown:
            self._before, self._shown = self._shown, newest
        if self._shown is None:
            from rich.console import Group

            return Group("measuring ...")
        rows = build_rows(self._before, self._shown, self._order, internal=self._internal)
        keys = _KEYS.format(order=self._order.value, pause="go on" if self._is_paused else "pause")
        return view(rows, height, keys)


@contextlib.contextmanager
def _keys(on_key: Callable[[str], None]) -> Iterator[None]:
    """Call `on_key` for each key, if standard input is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import os
    import termios
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    loop = asyncio.get_running_loop()

    def read() -> None:
        for key in os.read(number, 64).decode(errors="replace")[:1]:
            on_key(key)

    tty.setcbreak(number)
    loop.add_reader(number, read)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _print(rows: TopRows) -> None:
    sys.stdout.write(headline(rows) + "\n")
    for columns, cells in tables(rows):
        print_table(columns, cells, empty=f"no {columns[0].lower()}s")
