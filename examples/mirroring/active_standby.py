"""`python -m examples.mirroring.active_standby`: a cluster link keeps a standby with the same offsets.

1  starts two clusters, paris (active) and berlin (standby); `barnabas links create` in berlin mirrors topic and group
2  producers write orders in paris, and the group billing processes them there
3  kills paris (kill -9) under load: `barnabas links failover` lets berlin take writes; producers and group go on there,
   the group at its own offsets. Counts what was acknowledged and what is lost
4  starts paris again: `barnabas links reverse` makes it a mirror of berlin. What only paris has is cut off, and is in
   files there: exactly what was counted as lost
5  `barnabas links promote` moves the work back as planned, without loss, and `barnabas links start` makes berlin the
   standby again
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from examples.mirroring.accounts import Report, account, account_move, once
from examples.mirroring.clusters import (
    PARTITIONS,
    clusters,
    create_topic,
    fresh,
    group_offsets,
    read,
    step,
    until,
    values,
)
from examples.mirroring.work import Reader, Writer

from barnabas.client import AsyncAdmin
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.testing.process import BrokerProcess

LINK, REVERSE = "standby", "standby-reverse"
OFTEN = "mirror.metadata.refresh.interval.ms=500"
"""How often the link looks for new topics and for the offsets of groups; the default is a minute."""


async def run(out: Path, seconds: float) -> Report:
    with clusters(out, "paris", "berlin") as running:
        await create_topic(running["paris"], "orders")
        return await Day(running).run(seconds)


class Day:
    """The work, and where it goes."""

    def __init__(self, running: dict[str, BrokerProcess]) -> None:
        self.paris, self.berlin = running["paris"], running["berlin"]
        self.writer = Writer("order", "orders")
        self.billing = Reader("billing")
        self.report = Report()

    async def run(self, seconds: float) -> Report:
        patterns = ("--topics", "orders", "--groups", "billing", "--config", OFTEN)
        await links(self.berlin, "create", LINK, "--source", self.paris.bootstrap_servers, *patterns)
        self.writer.start(self.paris)
        await self.billing.start("paris", self.paris, "orders")
        await until(self._mirrors, "berlin mirrors the orders, and knows where the group is")
        step(f"working for {seconds:g} s")
        await asyncio.sleep(seconds)  # the length of the example
        await self._fail_over()
        await self._mirror_back()
        await self._move_back()
        return self.report

    async def _mirrors(self) -> bool:
        async with AsyncAdmin(bootstrap_servers=self.berlin.bootstrap_servers) as admin:
            statuses = await admin.describe_mirrors([LINK])
            works = [status.state == "MIRRORING" and status.source_high_watermark > 0 for status in statuses]
            offsets = await admin.list_group_offsets("billing")
            return bool(works) and all(works) and len(offsets) == len(works)

    async def _fail_over(self) -> None:
        """The active cluster dies; the standby takes over with what it has."""
        self.paris.kill()
        step("killed paris (kill -9)")
        began = time.monotonic()
        await self.writer.stop()
        await self.billing.stop()
        await links(self.berlin, "failover", LINK, "--yes")
        found = {partition: values(records) for partition, records in (await read(self.berlin, "orders")).items()}
        self.report.losses.append(account("paris", self.writer, found))
        count = len(self.writer.acknowledged)
        self.writer.start(self.berlin)
        await until(lambda: self._acknowledged(count + 1), "berlin accepts writes")
        step(f"{time.monotonic() - began:.1f} s after the failure")
        self.report.check("paris: lost is exactly the tail that was not mirrored", self.report.losses[-1].is_tail)
        there = [value for one in found.values() for value in one]
        await self.billing.start("berlin", self.berlin, "orders")
        await until(lambda: self.billing.has(there), "billing has gone on in berlin")
        self.report.moves.append(account_move(self.billing, "paris", there))

    async def _mirror_back(self) -> None:
        """The former active cluster becomes the mirror, and loses what only it has."""
        await asyncio.to_thread(self.paris.start)
        step("started paris again")
        servers = (self.berlin.bootstrap_servers, self.paris.bootstrap_servers)
        await links(self.berlin, "reverse", LINK, "--source", servers[0], "--to", servers[1], "--yes")
        await until(self._is_mirrored_back, "paris mirrors berlin")
        saved = {value for file in tails(self.paris.data_dir) for value in records_of(file)}
        lost = {value for tail in self.report.losses[0].tail.values() for value in tail}
        self.report.check(f"the {len(lost)} lost orders are in files of paris, named *.mirror-tail-*", lost <= saved)
        extra = saved - lost
        self.report.check("these files have nothing else that was acknowledged", extra <= set(self.writer.unknown))

    async def _is_mirrored_back(self) -> bool:
        async with AsyncAdmin(bootstrap_servers=self.paris.bootstrap_servers) as admin:
            statuses = await admin.describe_mirrors([REVERSE])
            return bool(statuses) and all(status.state == "MIRRORING" for status in statuses)

    async def _move_back(self) -> None:
        """A planned move: producers and consumers stop, the mirror catches up, and the work goes back without loss."""
        await self.writer.stop()
        lost = {value for tail in self.report.losses[0].tail.values() for value in tail}
        wanted = {one.value for one in self.writer.acknowledged} - lost
        await until(lambda: self.billing.has(wanted), "billing has processed everything in berlin")
        await self.billing.stop()
        await until(self._group_is_back, "paris knows where billing is")
        await links(self.paris, "promote", REVERSE)
        there = [value for records in (await read(self.paris, "orders")).values() for value in values(records)]
        self.report.check("the planned move has lost nothing", wanted <= set(there))
        self.report.check("each order is there once", once(there))
        count = len(self.writer.acknowledged)
        self.writer.start(self.paris)
        await self.billing.start("paris", self.paris, "orders")
        await until(lambda: self._acknowledged(count + 50), "producers and group are back in paris")
        await links(self.berlin, "start", LINK, "orders")
        await until(self._mirrors, "berlin is the standby again")
        await self.writer.stop()
        new = [one.value for one in self.writer.acknowledged[count:]]
        await until(lambda: self.billing.has(new), "billing has processed everything in paris")
        await self.billing.stop()
        self.report.moves.append(account_move(self.billing, "berlin", new))
        compared = await links(self.berlin, "verify", LINK)
        self.report.check("both clusters have the same bytes", compared.count("equal") == PARTITIONS)

    async def _group_is_back(self) -> bool:
        """The link moves the group's offsets once its members from before the failure have expired."""
        return await group_offsets(self.paris, "billing") == await group_offsets(self.berlin, "billing")

    async def _acknowledged(self, count: int) -> bool:
        return len(self.writer.acknowledged) >= count


async def links(broker: BrokerProcess, *arguments: str) -> str:
    """Run `barnabas links ...` against a cluster; return what it has printed."""
    step(f"barnabas links {' '.join(arguments)}")
    command = [sys.executable, "-m", "barnabas", "links", *arguments, "--bootstrap-server", broker.bootstrap_servers]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"barnabas links {arguments[0]} has failed: {printed.decode()}")
    return printed.decode()


def tails(data_dir: Path) -> list[Path]:
    """The files with what a failback has cut off."""
    return sorted(data_dir.rglob("*.mirror-tail-*.log"))


def records_of(file: Path) -> list[str]:
    """The values in a file of record batches, which kafka-dump-log reads, too."""
    data = file.read_bytes()
    batches = [(at, header) for at, header in iter_batches(data) if not header.is_control]
    return [(record.value or b"").decode() for at, header in batches for record in iter_records(data, at, header)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.mirroring.active_standby")
    parser.add_argument("--out", type=Path, default=Path("out/mirroring/active_standby"))
    parser.add_argument("--seconds", type=float, default=10.0, help="how long there is load (%(default)s)")
    given = parser.parse_args()
    return asyncio.run(run(fresh(given.out), given.seconds)).show()


if __name__ == "__main__":
    sys.exit(main())
