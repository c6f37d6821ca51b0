"""Every kind of position, and everything that can replace the thing that it points to: what becomes of the query.

Each case is computed by the code that decides; `positions.txt` has the answers, with failOnDataLoss=true and false, or
before and after `barnabas pipelines repair --apply-again`. `--rewrite` writes what happens now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from msgspec import structs

from barnabas.core.errors import BarnabasError
from barnabas.core.ids import TopicPartition
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.values import RegisteredSchema, Schema, SchemaType
from barnabas.spark.connectors.capture.errors import LostPositionError
from barnabas.spark.connectors.capture.planning import new_start
from barnabas.spark.connectors.mysql.binlog.transactions import BinlogTransaction
from barnabas.spark.connectors.mysql.positions import BinlogPosition, GtidSet
from barnabas.spark.connectors.mysql.relocation import (
    PlaceSearch,
    check_begun,
    check_executed,
    check_grown,
    parse_gtids,
    purged,
)
from barnabas.spark.connectors.mysql.server import ServerPlan, check_available
from barnabas.spark.connectors.polling.postgres import Switches, timeline_gap
from barnabas.spark.connectors.polling.source import PollingSource
from barnabas.spark.connectors.postgres.errors import PostgresError
from barnabas.spark.connectors.postgres.messages import ReplicaIdentity
from barnabas.spark.connectors.postgres.setup_state import Checkpoint, Publication, Server, Slot, Table, Wanted
from barnabas.spark.connectors.postgres.slot import check_position, check_tables, decide_setup
from barnabas.spark.connectors.sql.dialects import Dialect
from barnabas.spark.connectors.sql.polling import PolledTable, PollingMode
from barnabas.spark.connectors.sql.polling import Position as PolledPosition
from barnabas.spark.delivery.identity import LedgerEntry, digest_of, standing_of
from barnabas.spark.mirror.copying.planner import CopyPlanner, SourceView
from barnabas.spark.options import OnDataLoss
from barnabas.spark.records import registries
from barnabas.spark.source.options import Limits
from barnabas.spark.source.planner import LogOffsets, StreamPlanner, diverged_at, plan_replay
from barnabas.spark.source.positions import Position

FILE = Path(__file__).parent / "positions.txt"
TP = TopicPartition("orders", 0)
Answer = Callable[[bool], str]


def topic(
    ids: Mapping[str, str], earliest: int, latest: int, stored: Mapping[str, str] | None = None, same: int = 50
) -> Answer:
    """A query of Spark that has read the topic with the id A up to 50. The log has what was read up to `same`."""

    def answer(fails: bool) -> str:
        planner = StreamPlanner(Limits(), OnDataLoss.FAIL if fails else OnDataLoss.SKIP)
        start = Position({TP: 50}, ids={"orders": "A"} if stored is None else stored)
        diverged = diverged_at(start, {TP: same})
        plan = planner.plan(start, LogOffsets({TP: earliest}, {TP: latest}, ids, diverged=diverged), now_ms=0)
        rewound = replace(start, offsets={**start.offsets, **diverged})
        ranges, _ = plan_replay(rewound, plan.end, {TP: earliest}, ids)
        adopted = f", adopts {', '.join(plan.adopted)}" if plan.adopted else ""
        return (", ".join(f"reads {part.start} to {part.end}" for part in ranges) or "reads nothing") + adopted

    return answer


def mirror(topic_id: int, earliest: int, latest: int, target_id: int = 9, same: int = 50) -> Answer:
    """A copier that has copied the topic with the id 1 up to 50, into the topic with the id 9. The log has what was
    copied up to `same`."""

    def answer(fails: bool) -> str:
        ids, targets = {"orders": UUID(int=1)}, {"a.orders": UUID(int=9)}
        planner = CopyPlanner({"orders": "a.orders"}, {TP: 50}, ids, target_ids=targets, fail_on_data_loss=fails)
        diverged = {TP: same} if same < 50 else {}
        view = SourceView({TP: earliest}, {TP: latest}, {"orders": UUID(int=topic_id)}, diverged=diverged)
        now = {"a.orders": UUID(int=target_id)}
        planner.plan(view, {"a.orders": 1}, 0, now)
        step = planner.plan(view, {"a.orders": 1}, 60_000, now)
        return ", ".join(f"copies {part.start} to {part.end}" for part in step.ranges) or "copies nothing"

    return answer


class History:
    """A checkpoint with the micro-batches up to 5."""

    place = "/checkpoint"

    def __init__(self, run: int, *, again: bool, published: int | None = None, parents: tuple[str, ...] = ()) -> None:
        self.parents = parents
        self._run, self._again, self._published = run, again, published

    def offsets(self, batch_id: int) -> str | None:
        return f'v1\n{{"run": {self._run if batch_id > 3 else 0}}}\n{{"orders": {{"0": {batch_id}}}}}'

    def published(self, target: str) -> LedgerEntry | None:
        return None if self._published is None else LedgerEntry(self._published)

    def judged(self, target: str, batch_id: int) -> None:
        pass

    def applies_again(self, target: str, stored: LedgerEntry) -> bool:
        return self._again


def ledger(batch: int, stored: int | None, run: int = 0, published: int | None = None, known: bool = True) -> Answer:
    """A micro-batch of a checkpoint, and the ledger of a target that has micro-batch `stored` of run 0."""

    def answer(fails: bool) -> str:
        mine = History(0, again=False)
        text = None if stored is None else mine.offsets(stored)
        entry = (
            None
            if text is None or stored is None
            else LedgerEntry(stored, digest_of(text) if known else None, offsets=text if known else None)
        )
        history = History(run, again=not fails, published=published)
        return standing_of(lambda _: entry, "Q", batch, history, "the table t").value

    return answer


def forked(batch: int, run: int) -> Answer:
    """A micro-batch of a checkpoint that was forked from one whose query has published micro-batch 4."""

    def answer(fails: bool) -> str:
        text = History(0, again=False).offsets(4)
        assert text is not None
        entries = {"P": LedgerEntry(4, digest_of(text))}
        return standing_of(entries.get, "Q", batch, History(run, again=False, parents=("P",)), "the table t").value

    return answer


UUID_A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
UUID_B = "4350f323-7565-11f1-a9f8-52540041f5b6"
PLAN = ServerPlan(False, (8, 0, 0), UUID_A, False, True)
SERVER = Server(150018, 42, "logical", False, 10, 1, 0x5000, "shop", "reader", True, True, 1)
SLOT = Slot("s", "logical", "pgoutput", "shop", False, None, "reserved", None, False, 0x1000)
TABLES = (("public.orders", "16402"),)


READ = Checkpoint(0x2000, 42, 1, TABLES)


def captured(check: Callable[[bool], str]) -> Answer:
    """A query that captures changes: what becomes of a position that the source refuses."""

    def answer(fails: bool) -> str:
        try:
            return check(fails)
        except LostPositionError as error:
            return new_start(error, fails=fails)

    return answer


def postgres(
    checkpoint: Checkpoint = READ, oid: str = "16402", slot: Slot | None = SLOT, all_tables: bool = False, **found: Any
) -> Answer:
    def check(fails: bool) -> str:
        server = structs.replace(SERVER, **found)
        try:
            check_position("s", checkpoint, server, slot)
        except LostPositionError:
            if not fails:  # what the new start makes of a slot of the name
                table = Table(("public", "orders"), "r", "p", ReplicaIdentity.DEFAULT, True, True, True)
                publication = Publication(
                    "p", True, False, frozenset(("insert", "update", "delete")), True, frozenset()
                )
                decide_setup(Wanted("s", "p", (table.name,), lost=checkpoint), server, slot, publication, [table])
            raise
        warnings = check_tables(checkpoint, [("public.orders", oid)], fails=fails, all_tables=all_tables)
        return "; ".join(("goes on", *warnings))

    return captured(check)


def mysql(check: Callable[[BinlogPosition], None], begun: int = 7, gtids: str = f"{UUID_A}:1-9") -> Answer:
    def checked(fails: bool) -> str:
        check(BinlogPosition("mysql-bin.000001", 500, gtids, UUID_A, begun=begun))
        return "goes on"

    return captured(checked)


def executed(gtids: str, mariadb: bool = False) -> Callable[[BinlogPosition], None]:
    """Another server, which has executed these transactions."""
    return lambda at: check_executed(at, parse_gtids(gtids, mariadb=mariadb), UUID_B)


def searched(*, begin: str, written: Sequence[str], mariadb: bool = False) -> Callable[[BinlogPosition], None]:
    """Another server, whose binlog begins behind the transactions `begin` and has the transactions `written`."""

    def check(at: BinlogPosition) -> None:
        place = BinlogPosition("other-bin.000001", 4, begin, UUID_B)
        search = PlaceSearch(at, place, mariadb=mariadb)
        for number, gtid in enumerate(written):
            if search.place is None:
                transaction = BinlogTransaction(gtid, "other-bin.000001", 100 + number, 2, 0, (), 0)
                search.handle(transaction, structs.replace(place, position=100 + number))
        search.finish()

    return check


def has_purged(position: BinlogPosition) -> None:
    raise purged(position, f"{UUID_A}:1-20", UUID_B)


class FakeDatabase:
    def __init__(
        self,
        marks: Mapping[str, str],
        row: str | None,
        below: bool,
        switches: Switches | None = None,
        flushed: str = "0/2000",
    ) -> None:
        self._marks, self._row, self._below, self._switches, self._flushed = marks, row, below, switches, flushed

    def moment(self, table: PolledTable) -> Mapping[str, str]:
        return {"lsn": "0/2000", "flushed": self._flushed}

    def gap(self, stored: Mapping[str, str], found: Mapping[str, str]) -> str | None:
        return timeline_gap(stored, found, self._load, lambda: self._flushed, "reader")

    def _load(self, timeline: int) -> Switches:
        if self._switches is None:
            raise PostgresError("permission denied")
        return self._switches

    def marks(self, table: PolledTable) -> Mapping[str, str]:
        return self._marks

    def rows(self, statement: Any, doing: str) -> list[tuple[Any, ...]]:
        return [(1,)] if self._below else []

    def batches(self, statement: Any, columns: Any, doing: str) -> Iterator[Any]:
        if self._row is not None:
            yield pa.RecordBatch.from_pydict({"id": [100], "note": [self._row]})


def polled(
    marks: Mapping[str, str],
    row: str | None = "old",
    *,
    below: bool = True,
    mode: str = "incrementing",
    known: bool = True,
    switches: Switches | None = None,
    flushed: str = "0/3000",
) -> Answer:
    """A polled table that was read up to the number 100; `row` is the row of that number now."""

    def answer(fails: bool) -> str:
        times = ("at",) if "timestamp" in mode else ()
        number = "id" if "incrementing" in mode else None
        table = PolledTable(Dialect.POSTGRES, ("public", "orders"), PollingMode(mode), number, times)
        position = PolledPosition("2024-01-01" if times else None, 100 if number else None)
        columns: Any = SimpleNamespace(selected="*")
        options: Any = SimpleNamespace(template=table, fails_on_data_loss=fails, initial_ms=None)
        old = {"system": "1", "timeline": "1", "oid": "1", "file": "1"}
        before = PollingSource(options, FakeDatabase(old, "old", True))  # type: ignore[arg-type]
        stored = before._with_row(table, columns, position, old) if known else {}
        source = PollingSource(options, FakeDatabase(marks, row, below, switches, flushed))  # type: ignore[arg-type]
        begin, _ = source._checked(table, columns, position, stored)
        return "reads on" if begin == position else "reads from the beginning"

    return answer


def registry(found: str | None) -> Answer:
    def answer(fails: bool) -> str:
        class Client:
            def schema(self, schema_id: int, *, subject: str = "") -> Schema:
                if found is None:
                    raise RegistryError(Code.SCHEMA_NOT_FOUND, "not found")
                return Schema(found, SchemaType.AVRO)

        stored = registries.schema_marks(RegisteredSchema("s", 1, 17, Schema('"long"', SchemaType.AVRO)))
        access: Any = SimpleNamespace(url="http://registry:8081")
        original = registries.registry_client
        registries.registry_client = lambda _: Client()  # type: ignore[assignment, return-value]
        try:
            return registries.check_schema("value", access, stored) or "goes on"
        finally:
            registries.registry_client = original

    return answer


CASES: dict[str, dict[str, Answer]] = {
    "offset of a topic, Spark source": {
        "nothing": topic({"orders": "A"}, 0, 80),
        "created again, longer": topic({"orders": "B"}, 0, 150),
        "created again, shorter": topic({"orders": "B"}, 0, 20),
        "created again, and aged": topic({"orders": "B"}, 70, 150),
        "deleted records": topic({"orders": "A"}, 60, 80),
        "a truncated log": topic({"orders": "A"}, 0, 40),
        "truncated by an unclean election, and longer since": topic({"orders": "A"}, 0, 80, same=40),
        "a checkpoint without ids": topic({"orders": "A"}, 0, 80, {}),
        "created again, brokers without ids": topic({}, 0, 150),
    },
    "offset of a topic, mirror": {
        "nothing": mirror(1, 0, 80),
        "created again, longer": mirror(2, 0, 150),
        "created again, shorter": mirror(2, 0, 20),
        "created again in the target": mirror(1, 0, 80, 8),
        "deleted records": mirror(1, 60, 80),
        "a truncated log": mirror(1, 0, 40),
        "truncated by an unclean election, and longer since": mirror(1, 0, 80, same=40),
    },
    "micro-batch in a ledger": {
        "nothing, next": ledger(5, 4),
        "nothing, repeated": ledger(5, 5),
        "restored checkpoint, same number": ledger(5, 5, run=1),
        "restored checkpoint, lower number": ledger(4, 5, run=1),
        "restored checkpoint, higher number": ledger(5, 4, run=1),
        "restored target": ledger(5, 2, published=4),
        "replaced target": ledger(5, None, published=4),
        "a ledger with numbers only, next": ledger(5, 4, known=False),
        "a ledger with numbers only, repeated": ledger(5, 5, run=1, known=False),
        "a fork, repeated": forked(4, 0),
        "a fork, another way": forked(4, 1),
        "a fork, next": forked(5, 0),
    },
    "LSN of PostgreSQL": {
        "nothing": postgres(),
        "another server": postgres(system_identifier=43, slot=None),
        "another server, with a slot of the name": postgres(system_identifier=43),
        "a promoted standby with all changes": postgres(timeline=2, switches=((1, 0x2000),)),
        "a promoted standby without all": postgres(timeline=2, switches=((1, 0x1FFF),)),
        "a server of another branch": postgres(timeline=3, switches=((2, 0x3000),)),
        "a restored server": postgres(flush_lsn=0x1FFF),
        "a dropped slot": postgres(slot=None),
        "a slot that was created again": postgres(slot=structs.replace(SLOT, confirmed_flush_lsn=0x3000)),
        "a slot that has lost its log": postgres(slot=structs.replace(SLOT, wal_status="lost")),
        "a slot in use": postgres(slot=structs.replace(SLOT, active_pid=7), system_identifier=43),
        "a replaced table": postgres(oid="16500"),
        "a replaced table, all tables published": postgres(oid="16500", all_tables=True),
        "a truncated table": postgres(),
        "a position of an earlier release": postgres(Checkpoint(0x2000, 42), timeline=2),
    },
    "place in a binlog": {
        "nothing": mysql(lambda at: check_begun(at, 7)),
        "RESET MASTER": mysql(lambda at: check_begun(at, 8)),
        "RESET MASTER, by GTIDs": mysql(lambda at: check_grown(at, GtidSet.parse(at.gtids.replace(":1-9", ":1-3")))),
        "purged binlogs": mysql(has_purged),
        "a replica with the same transactions": mysql(executed(f"{UUID_A}:1-20")),
        "a server that lags behind": mysql(executed(f"{UUID_A}:1-3")),
        "a server that has nothing yet": mysql(executed("")),
        "another server, with transactions of its own": mysql(executed(f"{UUID_B}:1-50")),
        "another server of MariaDB, with a domain of its own": mysql(executed("7-2-50", True), gtids="0-1-9"),
        "another server of MariaDB, with fewer transactions": mysql(executed("0-2-5", True), gtids="0-1-9"),
        "another server of MariaDB, with equal numbers": mysql(
            searched(begin="", written=("0-2-9",), mariadb=True), gtids="0-1-9"
        ),
        "another server, without GTIDs": mysql(
            lambda at: check_available(structs.replace(PLAN, server_uuid=UUID_B), at, [at.file]), gtids=""
        ),
        "a replica with another order": mysql(searched(begin=f"{UUID_A}:1-8", written=(f"{UUID_A}:10",))),
        "a replica without the end": mysql(searched(begin=f"{UUID_A}:1-8", written=())),
        "a position of an earlier release": mysql(lambda at: check_begun(at, 8), begun=0),
    },
    "number of a polled table": {
        "nothing": polled({"oid": "1", "file": "1"}),
        "replaced": polled({"oid": "2", "file": "2"}, "new"),
        "replaced, row gone": polled({"oid": "2", "file": "2"}, None),
        "another server": polled({"system": "2", "timeline": "1", "oid": "1", "file": "1"}, "new"),
        "a promoted standby": polled({"timeline": "2", "oid": "1", "file": "1"}),
        "a promoted standby, row changed": polled({"timeline": "2"}, "new", switches=((1, 0x2000),)),
        "a promoted standby, row gone": polled({"timeline": "2"}, None, switches=((1, 0x2000),)),
        "a promoted standby, row changed, history unknown": polled({"timeline": "2"}, "new"),
        "a server of another branch, row changed": polled({"timeline": "3"}, "new", switches=((2, 0x3000),)),
        "a promoted standby, truncated since": polled({"timeline": "2", "file": "2"}, "new", switches=((1, 0x2000),)),
        "a restored server, other rows": polled({"timeline": "2"}, "new", switches=((1, 0x1FFF),)),
        "a restored server, row gone": polled({"timeline": "2"}, None, switches=((1, 0x1FFF),)),
        "an older copy of the server": polled({"oid": "1"}, "new", flushed="0/1FFF"),
        "an older copy of the server, row gone": polled({"oid": "1"}, None, flushed="0/1FFF"),
        "an older copy of the server, with the row": polled({"oid": "1"}, flushed="0/1FFF"),
        "truncated": polled({"oid": "1", "file": "2"}, "new"),
        "truncated, numbers go on": polled({"oid": "1", "file": "2"}, None, below=False),
        "rewritten or moved": polled({"oid": "2", "file": "2"}),
        "a position of an earlier release": polled({"oid": "2", "file": "2"}, "new", known=False),
    },
    "time of a polled table": {
        "replaced": polled({"oid": "2", "file": "2"}, "new", mode="timestamp"),
        "replaced, time and number": polled({"oid": "2", "file": "2"}, "new", mode="timestamp+incrementing"),
        "row changed, time and number": polled({"oid": "1", "file": "2"}, None, mode="timestamp+incrementing"),
    },
    "schema id of a registry": {
        "nothing": registry('"long"'),
        "ids that began anew": registry('"string"'),
        "an empty registry": registry(None),
    },
}


def outcome(answer: Answer, fails: bool) -> str:
    try:
        return answer(fails)
    except BarnabasError as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"


def test_what_becomes_of_each_position(pytestconfig: pytest.Config) -> None:
    logging.disable(logging.WARNING)
    try:
        lines = []
        for position, cases in CASES.items():
            for replaced_by, answer in cases.items():
                fails, goes_on = outcome(answer, True), outcome(answer, False)
                lines.append(f"{position} | {replaced_by}\n    {fails}")
                if goes_on != fails:
                    lines.append(f"    or: {goes_on}")
        text = "\n".join(lines) + "\n"
    finally:
        logging.disable(logging.NOTSET)
    if pytestconfig.getoption("--rewrite"):
        FILE.write_text(text)
    assert FILE.read_text() == text
