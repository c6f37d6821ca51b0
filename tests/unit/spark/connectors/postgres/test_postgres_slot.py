"""The start of a query on a slot, and the plan of its batches: what is done, and what is refused with which SQL."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from barnabas.spark.connectors.postgres.errors import SlotError
from barnabas.spark.connectors.postgres.messages import ReplicaIdentity
from barnabas.spark.connectors.postgres.setup_state import (
    BatchPlan,
    Checkpoint,
    Publication,
    PublicationMode,
    Server,
    Setup,
    Slot,
    Table,
    Wanted,
)
from barnabas.spark.connectors.postgres.slot import check_tables, decide_setup, not_visible, plan_batch
from barnabas.spark.connectors.postgres.statements import advance, peek, session_settings

ORDERS = ("public", "orders")
SERVER = Server(150018, 42, "logical", False, 10, 1, 0x5000, "shop", "reader", True, True)
SLOT = Slot("s", "logical", "pgoutput", "shop", False, None, "reserved", None, False, 0x1000)
PUBLICATION = Publication(
    "p", True, False, frozenset(("insert", "update", "delete", "truncate")), False, frozenset((ORDERS,))
)
TABLE = Table(ORDERS, "r", "p", ReplicaIdentity.DEFAULT, True, True, True)
WANTED = Wanted("s", "p", (ORDERS,))
RUNNING = structs.replace(WANTED, checkpoint=Checkpoint(0x2000, 42))
CREATE_SLOT = "CREATE_REPLICATION_SLOT \"s\" LOGICAL pgoutput (SNAPSHOT 'export')"
CREATE = 'CREATE PUBLICATION "p" FOR TABLE "public"."orders"'
DROP_SLOT = "SELECT pg_drop_replication_slot('s')"


def changed(value: Any, **changes: Any) -> Any:
    return structs.replace(value, **changes)


def test_a_first_start_creates_the_publication_and_then_the_slot() -> None:
    assert decide_setup(WANTED, SERVER, None, None, [TABLE]) == Setup((CREATE,), False, CREATE_SLOT, (ORDERS,))


def test_a_first_start_uses_a_publication_that_has_the_tables() -> None:
    assert decide_setup(WANTED, SERVER, None, PUBLICATION, [TABLE]) == Setup(create_slot=CREATE_SLOT)


def test_a_slot_of_an_earlier_start_without_a_checkpoint_is_created_again() -> None:
    wanted = changed(WANTED, created_slot=True)
    assert decide_setup(wanted, SERVER, SLOT, PUBLICATION, [TABLE]) == Setup(drop_slot=True, create_slot=CREATE_SLOT)
    lost = changed(SLOT, wal_status="lost")
    assert decide_setup(wanted, SERVER, lost, PUBLICATION, [TABLE]).drop_slot


def test_a_new_start_drops_the_slot_of_its_lost_position_and_no_other() -> None:
    wanted = changed(WANTED, lost=Checkpoint(0x2000, 42))
    again = Setup(drop_slot=True, create_slot=CREATE_SLOT)
    ahead = changed(SLOT, confirmed_flush_lsn=0x3000)
    assert decide_setup(wanted, SERVER, SLOT, PUBLICATION, [TABLE]) == again
    assert decide_setup(wanted, SERVER, changed(ahead, wal_status="lost"), PUBLICATION, [TABLE]) == again
    assert decide_setup(changed(wanted, created_slot=True), SERVER, ahead, PUBLICATION, [TABLE]) == again
    with pytest.raises(SlotError, match=r"at 0/3000, and the query was at 0/2000, so that.*another reader") as refused:
        decide_setup(wanted, SERVER, ahead, PUBLICATION, [TABLE])
    assert refused.value.sql == (DROP_SLOT,)
    other = changed(SERVER, system_identifier=43)
    with pytest.raises(SlotError, match="was at 0/2000 of another server"):
        decide_setup(wanted, other, changed(SLOT, confirmed_flush_lsn=None), PUBLICATION, [TABLE])


def test_a_restart_uses_the_slot_as_it_is() -> None:
    assert decide_setup(RUNNING, SERVER, SLOT, PUBLICATION, [TABLE]) == Setup()
    unreserved = decide_setup(RUNNING, SERVER, changed(SLOT, wal_status="unreserved"), PUBLICATION, [TABLE])
    assert "max_slot_wal_keep_size" in unreserved.warnings[0]


def test_a_start_without_a_snapshot_uses_a_slot_that_exists() -> None:
    wanted = changed(WANTED, snapshot=False)
    assert decide_setup(wanted, SERVER, SLOT, PUBLICATION, [TABLE]) == Setup()
    created = decide_setup(wanted, SERVER, None, PUBLICATION, [TABLE]).create_slot
    assert created == "CREATE_REPLICATION_SLOT \"s\" LOGICAL pgoutput (SNAPSHOT 'nothing')"


def test_a_new_table_is_added_to_the_publication_and_named_as_new() -> None:
    wanted = changed(RUNNING, tables=(ORDERS, ("public", 'odd"name')))
    tables = [TABLE, changed(TABLE, name=("public", 'odd"name'))]
    setup = decide_setup(wanted, SERVER, SLOT, PUBLICATION, tables)
    assert setup == Setup(
        ('ALTER PUBLICATION "p" ADD TABLE "public"."odd""name"',), new_tables=(("public", 'odd"name'),)
    )


def test_a_publication_of_all_tables_needs_no_new_table() -> None:
    publication = changed(PUBLICATION, all_tables=True, tables=frozenset())
    assert decide_setup(RUNNING, SERVER, SLOT, publication, [TABLE]) == Setup()


def test_a_partitioned_table_is_published_as_one_table() -> None:
    root = changed(TABLE, kind="p")
    setup = decide_setup(WANTED, SERVER, None, None, [root])
    assert setup.statements == (f"{CREATE} WITH (publish_via_partition_root = true)",)
    setup = decide_setup(WANTED, SERVER, None, PUBLICATION, [root])
    assert setup.statements == ('ALTER PUBLICATION "p" SET (publish_via_partition_root = true)',)


def test_the_command_that_creates_the_slot_follows_the_version() -> None:
    old = decide_setup(WANTED, changed(SERVER, version=140_000), None, PUBLICATION, [TABLE])
    assert old.create_slot == 'CREATE_REPLICATION_SLOT "s" LOGICAL pgoutput EXPORT_SNAPSHOT'
    wanted = changed(WANTED, failover=True)
    new = decide_setup(wanted, changed(SERVER, version=170_000), None, PUBLICATION, [TABLE])
    assert new.create_slot == "CREATE_REPLICATION_SLOT \"s\" LOGICAL pgoutput (SNAPSHOT 'export', FAILOVER true)"
    with pytest.raises(SlotError, match="needs PostgreSQL 17"):
        decide_setup(wanted, SERVER, None, PUBLICATION, [TABLE])


REFUSED: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "name": ({"wanted": changed(WANTED, slot="S")}, "cannot be the name of a slot", ()),
    "version": ({"server": changed(SERVER, version=130_010)}, "PostgreSQL 13, and logical messages need 14", ()),
    "standby": ({"server": changed(SERVER, in_recovery=True)}, "connect to the primary", ()),
    "wal_level": (
        {"server": changed(SERVER, wal_level="replica")},
        "wal_level is replica",
        ("ALTER SYSTEM SET wal_level = 'logical'",),
    ),
    "replication": (
        {"server": changed(SERVER, may_replicate=False)},
        "the role reader may not use replication slots",
        ('ALTER ROLE "reader" REPLICATION',),
    ),
    "slots": (
        {"server": changed(SERVER, slots=10), "slot": None},
        "all 10 replication slots exist",
        ("ALTER SYSTEM SET max_replication_slots = 15",),
    ),
    "no tables": ({"wanted": changed(WANTED, tables=()), "tables": []}, "no table is to be read", ()),
    "missing table": ({"tables": []}, "there is no table public.orders in the database shop", ()),
    "view": ({"tables": [changed(TABLE, kind="v")]}, "is not a table (relkind v)", ()),
    "unlogged": (
        {"tables": [changed(TABLE, persistence="u")]},
        "is unlogged",
        ('ALTER TABLE "public"."orders" SET LOGGED',),
    ),
    "select": (
        {"tables": [changed(TABLE, may_select=False)]},
        "may not read public.orders",
        ('GRANT SELECT ON "public"."orders" TO "reader"',),
    ),
    "no primary key": (
        {"tables": [changed(TABLE, has_identity=False)]},
        "refuses every UPDATE and DELETE",
        ('ALTER TABLE "public"."orders" REPLICA IDENTITY FULL',),
    ),
    "identity nothing": (
        {"tables": [changed(TABLE, identity=ReplicaIdentity.NOTHING)]},
        "refuses every UPDATE and DELETE",
        ('ALTER TABLE "public"."orders" REPLICA IDENTITY FULL',),
    ),
    "physical": ({"slot": changed(SLOT, slot_type="physical")}, "is physical, not logical", (DROP_SLOT,)),
    "plugin": ({"slot": changed(SLOT, plugin="wal2json")}, "the output plugin wal2json, not pgoutput", (DROP_SLOT,)),
    "database": ({"slot": changed(SLOT, database="other")}, "belongs to the database other", (DROP_SLOT,)),
    "temporary": ({"slot": changed(SLOT, temporary=True)}, "is temporary", (DROP_SLOT,)),
    "two-phase": ({"slot": changed(SLOT, two_phase=True)}, "decodes prepared transactions", (DROP_SLOT,)),
    "active": (
        {"slot": changed(SLOT, active_pid=77)},
        "in use by the process 77",
        ("SELECT pg_terminate_backend(77)",),
    ),
    "slot of another": ({"wanted": WANTED}, "but the query has no checkpoint", (DROP_SLOT,)),
    "lost": (
        {"slot": changed(SLOT, wal_status="lost")},
        "has lost its changes (wal_removed). Drop it, and start the query over with a new snapshot and a new"
        " checkpoint, or set failOnDataLoss=false",
        (DROP_SLOT,),
    ),
    "invalidated": (
        {"slot": changed(SLOT, invalidation_reason="idle_timeout")},
        "has lost its changes (idle_timeout)",
        (DROP_SLOT,),
    ),
    "dropped": ({"slot": None}, "all changes after 0/2000 are lost to this query", ()),
    "recreated": (
        {"slot": changed(SLOT, confirmed_flush_lsn=0x2001)},
        "the slot s is at 0/2001, after the query's position 0/2000",
        (),
    ),
    "another server": ({"server": changed(SERVER, system_identifier=43)}, "belongs to another server", ()),
    "restored server": ({"server": changed(SERVER, flush_lsn=0x1FFF)}, "the server's log ends at 0/1FFF", ()),
    "publication dropped": ({"publication": None}, "a slot cannot decode changes that are older", (CREATE, DROP_SLOT)),
    "publication narrowed": (
        {"publication": changed(PUBLICATION, operations=frozenset(("insert",)))},
        "may have passed changes already",
        ("ALTER PUBLICATION \"p\" SET (publish = 'delete, insert, update')", DROP_SLOT),
    ),
    "truncates not published": (
        {
            "wanted": changed(RUNNING, truncates=True),
            "publication": changed(PUBLICATION, operations=frozenset(("insert", "update", "delete"))),
        },
        "may have passed changes already",
        ("ALTER PUBLICATION \"p\" SET (publish = 'delete, insert, truncate, update')", DROP_SLOT),
    ),
    "publication mode": (
        {"wanted": changed(WANTED, publication_mode=PublicationMode.DISABLED), "slot": None, "publication": None},
        "publication.autocreate.mode is disabled",
        (CREATE,),
    ),
    "create privilege": (
        {"wanted": WANTED, "server": changed(SERVER, may_create=False), "slot": None, "publication": None},
        "the role reader may not create publications",
        (CREATE, 'GRANT CREATE ON DATABASE "shop" TO "reader"'),
    ),
    "table owner": (
        {"wanted": WANTED, "slot": None, "publication": None, "tables": [changed(TABLE, is_owner=False)]},
        "does not own public.orders",
        (CREATE,),
    ),
    "publication owner": (
        {"publication": changed(PUBLICATION, is_owner=False, tables=frozenset())},
        "does not own the publication p",
        ('ALTER PUBLICATION "p" ADD TABLE "public"."orders"',),
    ),
}


@pytest.mark.parametrize(("changes", "problem", "sql"), REFUSED.values(), ids=REFUSED)
def test_a_setup_that_cannot_work_is_refused_with_the_sql(
    changes: dict[str, Any], problem: str, sql: tuple[str, ...]
) -> None:
    given: dict[str, Any] = {"wanted": RUNNING, "server": SERVER, "slot": SLOT, "publication": PUBLICATION}
    given |= {"tables": [TABLE]} | changes
    with pytest.raises(SlotError) as caught:
        decide_setup(**given)
    assert problem in str(caught.value)
    assert caught.value.sql == sql
    for statement in sql:
        assert f"{statement};" in str(caught.value)


def test_reading_without_a_snapshot_needs_no_select() -> None:
    table = changed(TABLE, may_select=False)
    assert decide_setup(changed(RUNNING, snapshot=False), SERVER, SLOT, PUBLICATION, [table]) == Setup()


def test_a_batch_reads_up_to_the_flush_position_and_advances_to_its_start_only() -> None:
    start = Checkpoint(0x2000, 42)
    assert plan_batch(start, SERVER, SLOT, name="s") == BatchPlan(0x2000, 0x5000, 0x2000)
    at_start = changed(SLOT, confirmed_flush_lsn=0x2000)
    assert plan_batch(start, SERVER, at_start, name="s") == BatchPlan(0x2000, 0x5000, None)
    assert plan_batch(start, SERVER, at_start, name="s", wal_bytes_max=16) == BatchPlan(0x2000, 0x2010, None)
    idle = changed(SERVER, flush_lsn=0x2000)
    assert plan_batch(start, idle, at_start, name="s", wal_bytes_max=16) == BatchPlan(0x2000, 0x2000, None)


@pytest.mark.parametrize(
    ("slot", "server", "problem"),
    [
        (None, SERVER, "does not exist any more"),
        (changed(SLOT, confirmed_flush_lsn=0x2001), SERVER, "after the query's position"),
        (changed(SLOT, wal_status="lost"), SERVER, "has lost its changes"),
        (SLOT, changed(SERVER, flush_lsn=1), "the server's log ends"),
        (SLOT, changed(SERVER, system_identifier=1), "belongs to another server"),
    ],
)
def test_a_batch_whose_changes_are_gone_is_refused(slot: Slot | None, server: Server, problem: str) -> None:
    with pytest.raises(SlotError, match=problem):
        plan_batch(Checkpoint(0x2000, 42), server, slot, name="s")


def test_a_peek_names_the_publication_as_an_identifier() -> None:
    statement = peek("s", 'My "pub"', 0x16_B374D848)
    assert statement.parameters == ("s", "16/B374D848", '"My ""pub"""')
    assert statement.sql.count("%s") == 3
    assert advance("s", 255).parameters == ("s", "0/FF")
    settings = session_settings()
    assert settings.sql.count("%s") == len(settings.parameters)
    assert dict(zip(settings.parameters[::2], settings.parameters[1::2], strict=True))["timezone"] == "UTC"


def test_a_partition_with_another_replica_identity_is_refused() -> None:
    table = changed(TABLE, kind="p", identity=ReplicaIdentity.FULL, unlike_partitions=('"public"."orders_2024"',))
    with pytest.raises(SlotError, match="old values of their rows are missing") as caught:
        decide_setup(WANTED, SERVER, None, changed(PUBLICATION, via_root=True), [table])
    assert list(caught.value.sql) == [
        'ALTER TABLE "public"."orders_2024" REPLICA IDENTITY FULL',
        'ALTER TABLE "public"."orders" REPLICA IDENTITY FULL',
    ]


@pytest.mark.parametrize(
    ("position", "switches", "problem"),
    [
        (0x2000, ((1, 0x2000),), None),  # a standby that had all changes was promoted
        (0x2001, ((1, 0x2000),), "timeline 2, which left that timeline at 0/2000"),
        (0x1000, ((3, 0x2000),), "timeline 2, which never had that timeline"),
    ],
)
def test_a_position_of_another_timeline(position: int, switches: tuple[Any, ...], problem: str | None) -> None:
    server = changed(SERVER, timeline=2, switches=switches)
    checkpoint = Checkpoint(position, 42, 1)
    if problem is None:
        plan_batch(checkpoint, server, SLOT, name="s")
        plan_batch(Checkpoint(position, 42), server, SLOT, name="s")  # of an earlier release
        return
    with pytest.raises(SlotError, match=f"belongs to the timeline 1 of the server's log.*{problem}"):
        plan_batch(checkpoint, server, SLOT, name="s")


def test_a_captured_table_that_was_replaced() -> None:
    checkpoint = Checkpoint(0x2000, 42, 1, (("public.orders", "16402"),))
    assert check_tables(checkpoint, [("public.orders", "16402"), ("public.new", "9")], fails=True) == ()
    replaced = [("public.orders", "16500")]
    with pytest.raises(SlotError, match=r"the table public.orders was replaced: .* oid 16402, .* oid 16500 now"):
        check_tables(checkpoint, replaced, fails=True)
    (warning,) = check_tables(checkpoint, replaced, fails=False)
    assert "captured from now on" in warning
    (warning,) = check_tables(checkpoint, replaced, fails=True, all_tables=True)
    assert "no deletes" in warning
    assert check_tables(Checkpoint(0x2000, 42), replaced, fails=True) == ()


def test_a_transaction_is_visible_below_the_snapshot_unless_it_runs() -> None:
    epoch = 3 << 32
    assert not_visible([7, 8, 9, 10], epoch + 10, {epoch + 8}) == [8, 10]
    # Just after the counter of 32 bits has begun anew, its last numbers are of the time before.
    last = (1 << 32) - 1
    assert not_visible([last, 1, 2], epoch + 2, [epoch - 1]) == [last, 2]
    assert not_visible([last], epoch + 2, []) == []
