"""`python -m examples.mirroring.active_active [--identity]`: two clusters, east and west, mirror one another.

1  starts two clusters, and one `barnabas mirror run` for both directions. Copies are called `west.orders` in east and
   `east.orders` in west; with `--identity`, they are called `orders` as the originals, and a header says where a record
   comes from, so that nothing goes round in circles
2  each region has producers, and a group `shipping-<region>` that processes the orders of its region
3  kills west (kill -9) under load: counts what east has and what is lost. The producers of west write into east, and
   the group shipping-west goes on in east
4  starts west again: the mirror copies what was missing in both directions, producers and group go back, and both
   clusters have each order once
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

from barnabas.client import AsyncAdmin
from barnabas.testing.process import BrokerProcess

HEADER = "mirrored-from"
SETTINGS = {
    "east->west.enabled": "true",
    "west->east.enabled": "true",
    "topics": "orders",
    "groups": "shipping-.*",
}
IDENTITY = {"replication.policy.class": "IdentityReplicationPolicy", "provenance.header": HEADER}
REGIONS = ("east", "west")


async def run(out: Path, seconds: float, *, identity: bool) -> Report:
    with clusters(out, *REGIONS) as running:
        for region in REGIONS:
            await create_topic(running[region], "orders")
        async with mirror(out, running, SETTINGS | (IDENTITY if identity else {}), REGIONS):
            return await Day(running, identity=identity).run(seconds)


class Day:
    """The work in the two regions."""

    def __init__(self, running: dict[str, BrokerProcess], *, identity: bool) -> None:
        self.clusters = running
        self.identity = identity
        self.writers = {region: Writer(region, "orders") for region in REGIONS}
        self.shipping = {region: Reader(f"shipping-{region}", f"{region}-") for region in REGIONS}
        self.topics: str | re.Pattern[str] = "orders" if identity else re.compile(r"((east|west)\.)?orders")
        self.report = Report()

    def copy(self, region: str) -> str:
        """The name of the copy of a region's orders, in the other region."""
        return "orders" if self.identity else f"{region}.orders"

    async def copied(self, region: str) -> dict[int, list[str]]:
        """The orders of a region that the other region has, by partition."""
        (other,) = (name for name in REGIONS if name != region)
        if not await ends(self.clusters[other], self.copy(region)):
            return {}
        found = await read(self.clusters[other], self.copy(region))
        return {p: [value for value in values(records) if value.startswith(region)] for p, records in found.items()}

    async def run(self, seconds: float) -> Report:
        for region in REGIONS:
            self.writers[region].start(self.clusters[region])
            await self.shipping[region].start(region, self.clusters[region], self.topics)
        await until(self._copied, "each region has orders of the other one, and knows where its groups are")
        step(f"working for {seconds:g} s")
        await asyncio.sleep(seconds)  # the length of the example
        await self._lose_west()
        await self._get_west_back()
        return self.report

    async def _copied(self) -> bool:
        for here, there in (REGIONS, REGIONS[::-1]):
            checkpoints = await ends(self.clusters[here], f"{there}.checkpoints.internal")
            if not any(checkpoints.values()) or not any((await self.copied(there)).values()):
                return False
        return True

    async def _lose_west(self) -> None:
        """Kill a region under load; its producers and its group go on in the other one."""
        writer, shipping, east = self.writers["west"], self.shipping["west"], self.clusters["east"]
        self.clusters["west"].kill()
        step("killed west (kill -9)")
        await writer.stop()
        await shipping.stop()
        found = await self.copied("west")
        self.report.losses.append(account("west", writer, found))
        self.report.check("west: lost is exactly the tail that was not mirrored", self.report.losses[-1].is_tail)
        there = [value for one in found.values() for value in one]
        writer.start(east)
        await shipping.start("east", east, self.topics)
        await until(lambda: shipping.has(there), "shipping-west has gone on in east")
        self.report.moves.append(account_move(shipping, "west", there))

    async def _get_west_back(self) -> None:
        """Start the region again. Its work goes back when the mirrors have caught up in both directions."""
        writer, shipping, west = self.writers["west"], self.shipping["west"], self.clusters["west"]
        await asyncio.to_thread(west.start)
        step("started west again")
        await writer.stop()
        tail = [value for values_ in self.report.losses[0].tail.values() for value in values_]
        wanted = {one.value for one in writer.acknowledged}
        await until(lambda: shipping.has(wanted), f"east has the {len(tail)} missing orders of west")

        async def west_has_all() -> bool:
            return wanted <= set(await self._everything("west"))

        await until(west_has_all, "west has what its producers have written in east")
        await shipping.stop()
        writer.start(west)
        await shipping.start("west", west, self.topics)
        count = len(writer.acknowledged)

        async def works() -> bool:
            return len(writer.acknowledged) > count + 50

        await until(works, "producers and group of west are back in west")
        for region in REGIONS:
            await self.writers[region].stop()
        there = [value for value in await self._everything("west") if value.startswith("west")]
        await until(lambda: shipping.has(there), "shipping-west has processed everything in west")
        self.report.moves.append(account_move(shipping, "east", there))
        await self._check_all()

    async def _check_all(self) -> None:
        wanted = {one.value for writer in self.writers.values() for one in writer.acknowledged}
        everything: dict[str, list[str]] = {}

        async def all_there() -> bool:
            for region in REGIONS:
                everything[region] = await self._everything(region)
            return all(wanted <= set(found) for found in everything.values())

        await until(all_there, "both regions have every acknowledged order")
        for region in REGIONS:
            await self.shipping[region].stop()
            async with AsyncAdmin(bootstrap_servers=self.clusters[region].bootstrap_servers) as admin:
                names = {topic.name for topic in await admin.list_topics()}
            echoes = {name for name in names if name.endswith(".orders") and name.count(".") > 1}
            self.report.check(f"{region}: each order is there once, nothing came back", once(everything[region]))
            self.report.check(f"{region}: there are no copies of copies", not echoes)
        self.report.check("both regions have the same orders", set(everything["east"]) == set(everything["west"]))

    async def _everything(self, region: str) -> list[str]:
        """The orders that a region has, its own and the copies."""
        (other,) = (name for name in REGIONS if name != region)
        topics = {"orders", self.copy(other)}
        found = [await read(self.clusters[region], topic) for topic in sorted(topics)]
        return [value for topic in found for records in topic.values() for value in values(records)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.mirroring.active_active")
    parser.add_argument("--out", type=Path, default=Path("out/mirroring/active_active"))
    parser.add_argument("--seconds", type=float, default=10.0, help="how long there is load (%(default)s)")
    parser.add_argument("--identity", action="store_true", help="copies have the names of their originals")
    given = parser.parse_args()
    return asyncio.run(run(fresh(given.out), given.seconds, identity=given.identity)).show()


if __name__ == "__main__":
    sys.exit(main())
