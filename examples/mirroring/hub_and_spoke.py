"""`python -m examples.mirroring.hub_and_spoke`: two spokes, paris and tokyo, are mirrored into one hub.

1  starts three clusters, and one `barnabas mirror run` that copies both spokes into the hub
2  producers write orders in both spokes, each spoke has a group `billing-<spoke>` that processes them, and in the hub
   the group `reports` processes the orders of all spokes
3  kills paris (kill -9) under load: counts what the hub has and what is lost; billing-paris goes on in the hub
4  starts paris again: the mirror copies what was missing, and the hub has each order once
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from pathlib import Path

from examples.mirroring.accounts import Report, account, account_move, once
from examples.mirroring.clusters import clusters, create_topic, ends, fresh, mirror, read, step, until, values
from examples.mirroring.work import Reader, Writer

from barnabas.testing.process import BrokerProcess

SPOKES = ("paris", "tokyo")
SETTINGS = {
    "paris->hub.enabled": "true",
    "tokyo->hub.enabled": "true",
    "topics": "orders",
    "groups": "billing-.*",
}


async def run(out: Path, seconds: float) -> Report:
    with clusters(out, *SPOKES, "hub") as running:
        for spoke in SPOKES:
            await create_topic(running[spoke], "orders")
        async with mirror(out, running, SETTINGS, ["hub"]):
            return await Day(running).run(seconds)


class Day:
    """The work in the three clusters."""

    def __init__(self, running: dict[str, BrokerProcess]) -> None:
        self.clusters = running
        self.writers = {spoke: Writer(spoke, "orders") for spoke in SPOKES}
        self.billing = {spoke: Reader(f"billing-{spoke}") for spoke in SPOKES}
        self.reports = Reader("reports")
        self.report = Report()

    async def run(self, seconds: float) -> Report:
        for spoke in SPOKES:
            self.writers[spoke].start(self.clusters[spoke])
            await self.billing[spoke].start(spoke, self.clusters[spoke], "orders")
        await self.reports.start("hub", self.clusters["hub"], re.compile(r"(paris|tokyo)\.orders"))
        await until(self._copied, "the hub has orders of both spokes, and knows where the billing groups are")
        step(f"working for {seconds:g} s")
        await asyncio.sleep(seconds)  # the length of the example
        await self._lose_paris()
        await self._get_paris_back()
        return self.report

    async def _copied(self) -> bool:
        hub = self.clusters["hub"]
        topics = [f"{spoke}.{name}" for spoke in SPOKES for name in ("orders", "checkpoints.internal")]
        return all([any((await ends(hub, topic)).values()) for topic in topics])

    async def _lose_paris(self) -> None:
        """Kill a spoke under load; its group goes on in the hub, with what the hub has."""
        self.clusters["paris"].kill()
        step("killed paris (kill -9)")
        await self.writers["paris"].stop()
        billing = self.billing["paris"]
        await billing.stop()
        copies = await read(self.clusters["hub"], "paris.orders")
        found = {partition: values(records) for partition, records in copies.items()}
        self.report.losses.append(account("paris", self.writers["paris"], found))
        self.report.check("paris: lost is exactly the tail that was not mirrored", self.report.losses[-1].is_tail)
        there = [value for one in found.values() for value in one]
        await billing.start("hub", self.clusters["hub"], "paris.orders")
        await until(lambda: billing.has(there), "billing-paris has gone on in the hub")
        self.report.moves.append(account_move(billing, "paris", there))

    async def _get_paris_back(self) -> None:
        """Start the spoke again; the mirror goes on, and the hub gets the tail."""
        before = len(self.writers["tokyo"].acknowledged)
        await asyncio.to_thread(self.clusters["paris"].start)
        step("started paris again")
        await self.writers["tokyo"].stop()
        sources = {spoke: await read(self.clusters[spoke], "orders") for spoke in SPOKES}
        wanted = {value for topic in sources.values() for records in topic.values() for value in values(records)}
        await until(
            lambda: self.reports.has(wanted), "the group reports has the orders of both spokes, the tail of paris too"
        )
        await self.reports.stop()
        for spoke in SPOKES:
            await self.billing[spoke].stop()
            copies = await read(self.clusters["hub"], f"{spoke}.orders")
            same = all(values(copies[p]) == values(records) for p, records in sources[spoke].items())
            self.report.check(f"{spoke}: the hub has each order once, in order", same)
            given = {one.value for one in self.writers[spoke].acknowledged}
            self.report.check(f"{spoke}: every acknowledged order is there in the end", given <= wanted)
        self.report.check("the group reports has processed each order once", once(self.reports.values()))
        self.report.check("tokyo went on while paris was away", len(self.writers["tokyo"].acknowledged) >= before > 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.mirroring.hub_and_spoke")
    parser.add_argument("--out", type=Path, default=Path("out/mirroring/hub_and_spoke"))
    parser.add_argument("--seconds", type=float, default=10.0, help="how long there is load (%(default)s)")
    given = parser.parse_args()
    return asyncio.run(run(fresh(given.out), given.seconds)).show()


if __name__ == "__main__":
    sys.exit(main())
