"""Machine: what to do about a slot and a publication at the start of a query, and which changes a micro-batch reads.

Wrong setups are refused before anything is read, with the SQL that repairs them. The publication is created before the
slot, because a slot cannot decode changes that are older than its publication. A slot that has lost changes is never
replaced silently: the error names the gap.
Source: PostgreSQL's manual, chapter "Logical Decoding" and sections "CREATE PUBLICATION", "pg_replication_slots",
"Replication Management Functions"; `src/backend/replication/slot.c`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from barnabas.spark.connectors.postgres.changes import TableName
from barnabas.spark.connectors.postgres.errors import ServerNotReadyError, SlotError, SlotInUseError, SlotLostError
from barnabas.spark.connectors.postgres.lsn import format_lsn
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
from barnabas.spark.connectors.sql.dialects import Dialect, quote_for_display
from barnabas.spark.identities import Belonging, belonging, replaced

PLUGIN: Final = "pgoutput"
VERSION_MIN: Final = 140_000
"""PostgreSQL 14 has the option `messages` of pgoutput."""

_FAILOVER_VERSION: Final = 170_000
_OPTIONS_VERSION: Final = 150_000
_XID_MASK: Final = (1 << 32) - 1
_XID_HALF: Final = 1 << 31
_SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}", re.ASCII)
_ANEW: Final = "or set failOnDataLoss=false: it reads a new snapshot then"
_OPERATIONS: Final = ("delete", "insert", "update")
_PUBLISHED_KINDS: Final = ("r", "p")


def decide_setup(
    wanted: Wanted,
    server: Server,
    slot: Slot | None,
    publication: Publication | None,
    tables: Sequence[Table],
) -> Setup:
    """What to do before the first batch of this start. Raises SlotError, with the SQL that helps, if that is nothing.

    `tables` has those of the wanted tables that exist.
    """
    _check_server(wanted, server, slot)
    _check_tables(wanted, server, tables)
    keeps_slot = _check_slot(wanted, server, slot)
    statements, new_tables = _publication(wanted, server, publication, tables, keeps_slot=keeps_slot)
    if keeps_slot:
        assert slot is not None
        return Setup(statements, new_tables=new_tables, warnings=_warnings(slot))
    return Setup(statements, slot is not None, _create_slot(wanted, server), new_tables)


def plan_batch(
    start: Checkpoint, server: Server, slot: Slot | None, *, name: str, wal_bytes_max: int | None = None
) -> BatchPlan:
    """Which changes the next batch reads: those up to the flushed end of the log, or `wal_bytes_max` of it.

    The slot is advanced to `start` only, not to `end`: until the batch is committed, it can be read again. Log above
    the flush position can still be lost in a crash, so that a replay would read something else. `end` may lie inside a
    record (see `transactions.py`). `name` is that of the slot. Raises SlotError if changes from `start` on are gone.
    """
    check_position(name, start, server, slot)
    assert slot is not None and slot.confirmed_flush_lsn is not None
    end = server.flush_lsn if wal_bytes_max is None else min(server.flush_lsn, start.lsn + wal_bytes_max)
    return BatchPlan(start.lsn, end, start.lsn if slot.confirmed_flush_lsn < start.lsn else None)


def not_visible(xids: Iterable[int], xmax: int, running: Collection[int]) -> list[int]:
    """The transactions whose changes a session does not see. `xids` have 32 bits, as changes do, and `xmax` and
    `running` (pg_current_snapshot) 64.
    """
    unseen = []
    for xid in xids:
        whole = (xmax & ~_XID_MASK) | xid
        if whole > xmax + _XID_HALF:  # of the time before the counter of 32 bits began anew
            whole -= _XID_MASK + 1
        if whole >= xmax or whole in running:
            unseen.append(xid)
    return unseen


def _check_server(wanted: Wanted, server: Server, slot: Slot | None) -> None:
    if _SLOT_NAME.fullmatch(wanted.slot) is None:
        raise SlotError(
            f"{wanted.slot!r} cannot be the name of a slot: use 1 to 63 lower-case letters, digits and underscores"
            " (slot.name)"
        )
    if server.version < VERSION_MIN:
        raise SlotError(
            f"the server is PostgreSQL {server.version // 10_000}, and logical messages need 14: upgrade the server,"
            " or read the tables by polling"
        )
    if server.in_recovery:
        raise ServerNotReadyError(
            "the server is a standby, which cannot create slots and publications: connect to the primary, or promote it"
        )
    if server.wal_level != "logical":
        raise SlotError(
            f"wal_level is {server.wal_level}, and logical decoding needs logical: change it as a superuser, and"
            " restart the server.",
            ("ALTER SYSTEM SET wal_level = 'logical'",),
        )
    if not server.may_replicate:
        raise SlotError(
            f"the role {server.role} may not use replication slots: allow that as a superuser.",
            (f"ALTER ROLE {_quoted(server.role)} REPLICATION",),
        )
    if slot is None and server.slots >= server.slots_max:
        raise SlotError(
            f"all {server.slots_max} replication slots exist already: drop an unused one, or allow more as a"
            " superuser, and restart the server.",
            (f"ALTER SYSTEM SET max_replication_slots = {server.slots_max + 5}",),
        )


def _check_tables(wanted: Wanted, server: Server, tables: Sequence[Table]) -> None:
    if not wanted.tables:
        raise SlotError("no table is to be read: name at least one (table.include.list)")
    found = {table.name for table in tables}
    missing = [_shown(name) for name in wanted.tables if name not in found]
    if missing:
        raise SlotError(f"there is no table {', '.join(missing)} in the database {server.database}: check its name")
    for table in tables:
        name = _shown(table.name)
        if table.kind not in _PUBLISHED_KINDS:
            raise SlotError(f"{name} is not a table (relkind {table.kind}), so that it has no changes: leave it out")
        if table.persistence != "p":
            raise SlotError(
                f"{name} is unlogged or temporary, so that its changes are not in the log: log them, or leave it out.",
                (f"ALTER TABLE {_path(table.name)} SET LOGGED",),
            )
    unreadable = [table.name for table in tables if not table.may_select]
    if unreadable and wanted.snapshot:
        raise SlotError(
            f"the role {server.role} may not read {', '.join(map(_shown, unreadable))}: allow that as the owner.",
            (f"GRANT SELECT ON {', '.join(map(_path, unreadable))} TO {_quoted(server.role)}",),
        )
    for table in tables:
        check_partitions(table)
    anonymous = [table.name for table in tables if not _identifies_rows(table)]
    if anonymous:
        raise SlotError(
            f"{', '.join(map(_shown, anonymous))}: a published table without a replica identity refuses every UPDATE"
            " and DELETE of the application. Add a primary key, or let changes contain the whole old row.",
            tuple(f"ALTER TABLE {_path(name)} REPLICA IDENTITY FULL" for name in anonymous),
        )


def check_partitions(table: Table) -> None:
    """Raise ServerNotReadyError if changes of a partition have other old values than the table's replica identity says:
    the server logs them by the identity of the partition, and describes them by that of the table.
    """
    if table.unlike_partitions:
        names = ", ".join(table.unlike_partitions)
        raise ServerNotReadyError(
            f"partitions of {_shown(table.name)} have another replica identity than the table ({names}), so that old"
            " values of their rows are missing. Give all of them the same one; ALTER TABLE .. REPLICA IDENTITY of a"
            " partitioned table does not change its partitions, and a new partition does not inherit it.",
            tuple(
                f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in (*table.unlike_partitions, _path(table.name))
            ),
        )


def _identifies_rows(table: Table) -> bool:
    if table.identity is ReplicaIdentity.FULL:
        return True
    return table.identity is not ReplicaIdentity.NOTHING and table.has_identity


def _check_slot(wanted: Wanted, server: Server, slot: Slot | None) -> bool:
    """Whether the slot is used as it is; else it is created, or created again."""
    if slot is not None:
        _check_kind(server, slot)
    if wanted.checkpoint is not None:
        check_position(wanted.slot, wanted.checkpoint, server, slot)
        return True
    if slot is None or wanted.created_slot or _is_old(wanted, server, slot):
        return False
    if wanted.snapshot and wanted.lost is not None:
        where = "" if _is_here(wanted.lost, server) else " of another server"
        raise SlotError(
            f"the slot {slot.name} exists, at {format_lsn(slot.confirmed_flush_lsn or 0)}, and the query was at"
            f" {format_lsn(wanted.lost.lsn)}{where}, so that the slot may be that of another reader. The query starts"
            " anew with a snapshot, which needs a slot of its own: drop the slot if it is unused, or start the query"
            " over with another one (slot.name), a new checkpoint and an empty stagingLocation.",
            (_drop(slot.name),),
        )
    if wanted.snapshot:
        raise SlotError(
            f"the slot {slot.name} exists, but the query has no checkpoint, and a snapshot that fits the changes needs"
            " a slot of its own: choose another name (slot.name), start without a snapshot (snapshot.mode=no_data), or"
            " drop the slot if it is unused.",
            (_drop(slot.name),),
        )
    _check_usable(slot)
    return True


def _is_old(wanted: Wanted, server: Server, slot: Slot) -> bool:
    """Whether the slot is that of the lost position of the query, and of no use: it was created on this same server,
    or has come here with a copy of its data. On another server, a slot of the name may belong to another program, and
    so may one that is ahead of the query.
    """
    if wanted.lost is None or not _is_here(wanted.lost, server):
        return False
    if slot.confirmed_flush_lsn is None or _unusable(slot) is not None:
        return True
    return wanted.snapshot and slot.confirmed_flush_lsn <= wanted.lost.lsn


def _is_here(checkpoint: Checkpoint, server: Server) -> bool:
    return checkpoint.system_identifier == server.system_identifier


def _check_kind(server: Server, slot: Slot) -> None:
    problem = None
    if slot.slot_type != "logical":
        problem = f"is {slot.slot_type}, not logical"
    elif slot.plugin != PLUGIN:
        problem = f"has the output plugin {slot.plugin}, not {PLUGIN}"
    elif slot.database != server.database:
        problem = f"belongs to the database {slot.database}, not to {server.database}"
    elif slot.temporary:
        problem = "is temporary, so that it ends with a session"
    elif slot.two_phase:
        problem = "decodes prepared transactions (two_phase), which are not read here"
    if problem is not None:
        raise SlotError(
            f"the slot {slot.name} {problem}: choose another name (slot.name), or drop the slot if it is unused.",
            (_drop(slot.name),),
        )
    if slot.active_pid is not None:
        raise SlotInUseError(
            f"the slot {slot.name} is in use by the process {slot.active_pid} of the server: stop its reader, or choose"
            " another name (slot.name). A reader that is gone but still connected can be ended.",
            (f"SELECT pg_terminate_backend({slot.active_pid})",),
        )


def _unusable(slot: Slot) -> str | None:
    """Why a slot has lost its changes, in PostgreSQL's words; None if it has them."""
    if slot.invalidation_reason is not None or slot.wal_status == "lost" or slot.confirmed_flush_lsn is None:
        return slot.invalidation_reason or "wal_removed"
    return None


def _check_usable(slot: Slot) -> None:
    reason = _unusable(slot)
    if reason is not None:
        raise SlotLostError(
            f"the slot {slot.name} has lost its changes ({reason}). Drop it, and start the query over with a new"
            f" snapshot and a new checkpoint, {_ANEW}; a larger max_slot_wal_keep_size, or -1, prevents that.",
            (_drop(slot.name),),
        )


def check_position(name: str, checkpoint: Checkpoint, server: Server, slot: Slot | None) -> None:
    """Raise SlotLostError, which names the gap, if the slot does not have all changes from the checkpoint on."""
    since = format_lsn(checkpoint.lsn)
    again = f"start the query over with a new checkpoint, {_ANEW}"
    if server.system_identifier != checkpoint.system_identifier:
        raise SlotLostError(
            f"the checkpoint at {since} belongs to another server (system identifier {checkpoint.system_identifier},"
            f" not {server.system_identifier}): connect to that server, or {again}"
        )
    _check_timeline(checkpoint, server, again)
    if slot is None:
        raise SlotLostError(
            f"the slot {name} does not exist any more, so that all changes after {since} are lost to this query. Find"
            f" out who dropped the slot (a failover before PostgreSQL 17 drops it too), and {again}"
        )
    _check_usable(slot)
    assert slot.confirmed_flush_lsn is not None
    if slot.confirmed_flush_lsn > checkpoint.lsn:
        raise SlotLostError(
            f"the slot {name} is at {format_lsn(slot.confirmed_flush_lsn)}, after the query's position {since}: the"
            " changes between them are gone. The slot was created again, or another reader uses it. Give each reader a"
            f" slot of its own, and {again}"
        )
    if server.flush_lsn < checkpoint.lsn:
        raise SlotLostError(
            f"the server's log ends at {format_lsn(server.flush_lsn)}, before the query's position {since}: the server"
            f" was restored from a backup, or is another one. Connect to the right server, or {again}"
        )


def _check_timeline(checkpoint: Checkpoint, server: Server, again: str) -> None:
    """Raise SlotLostError if the server's log does not go through the position, because it left the timeline before."""
    if checkpoint.timeline in (0, server.timeline) or not server.timeline:
        return
    where = missed_by(server.switches, checkpoint.timeline, checkpoint.lsn)
    if where is None:
        return
    raise SlotLostError(
        f"the checkpoint at {format_lsn(checkpoint.lsn)} belongs to the timeline {checkpoint.timeline} of the"
        f" server's log, and the server is on the timeline {server.timeline}, which {where}: the server was"
        " restored from a backup, or a standby was promoted that had not got all changes. Changes that the query has"
        f" read are not in the server: {again}"
    )


def missed_by(switches: Sequence[tuple[int, int]], timeline: int, lsn: int) -> str | None:
    """How the history of a server's log (`Server.switches`) misses a position in an earlier timeline, as what follows
    "the server"; None if it goes through the position.
    """
    left = dict(switches).get(timeline)
    if left is None:
        return "never had that timeline"
    return None if lsn <= left else f"left that timeline at {format_lsn(left)}"


def check_tables(
    checkpoint: Checkpoint, found: Sequence[tuple[str, str]], *, fails: bool, all_tables: bool = False
) -> tuple[str, ...]:
    """Warnings about captured tables that are other ones of the same name than at the checkpoint. `found` has their
    OIDs now. Raises SlotError, unless `fails` is false or the publication has all tables: a publication that names
    tables does not have the new one, so that its changes until now are lost.
    """
    stored = dict(checkpoint.tables)
    problems = [
        replaced(f"the table {name}", {"oid": stored[name]}, {"oid": oid})
        for name, oid in found
        if belonging({"oid": stored[name]} if name in stored else {}, {"oid": oid}) is Belonging.REPLACED
    ]
    if not problems or all_tables:
        return tuple(f"{problem}; there are no deletes of the rows of the old one" for problem in problems)
    text = "; ".join(problems)
    if fails:
        raise SlotError(
            f"{text}. The publication does not have the new table, so that its rows and changes are missing. Start the"
            " query over with a new checkpoint and a new slot, which reads a new snapshot; or set failOnDataLoss=false,"
            " to capture the new table from now on"
        )
    return (f"{text}: it is captured from now on, and the rows that it has are not read",)


def _publication(
    wanted: Wanted, server: Server, publication: Publication | None, tables: Sequence[Table], *, keeps_slot: bool
) -> tuple[tuple[str, ...], tuple[TableName, ...]]:
    """The statements that create or change the publication, and the tables that become new members."""
    name = _quoted(wanted.publication)
    partitioned = any(table.kind == "p" for table in tables)
    if publication is None:
        options = " WITH (publish_via_partition_root = true)" if partitioned else ""
        create = f"CREATE PUBLICATION {name} FOR TABLE {', '.join(map(_path, wanted.tables))}{options}"
        if keeps_slot:
            raise SlotError(
                f"the publication {wanted.publication} does not exist, but the slot {wanted.slot} does, and a slot"
                " cannot decode changes that are older than its publication. Create the publication, drop the slot, and"
                " start the query over with a new checkpoint, which reads a new snapshot.",
                (create, _drop(wanted.slot)),
            )
        if not server.may_create:
            grant = f"GRANT CREATE ON DATABASE {_quoted(server.database)} TO {_quoted(server.role)}"
            raise _refusal(wanted, f"the role {server.role} may not create publications", (create,), (grant,))
        return _allowed(wanted, server, tables, (create,)), wanted.tables
    statements = []
    operations = (*_OPERATIONS, "truncate") if wanted.truncates else _OPERATIONS
    lacking = [operation for operation in operations if operation not in publication.operations]
    if lacking:
        publish = ", ".join(sorted({*publication.operations, *operations}))
        statements.append(f"ALTER PUBLICATION {name} SET (publish = '{publish}')")
    if partitioned and not publication.via_root:
        statements.append(f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true)")
    missing = () if publication.all_tables else wanted.tables
    new = tuple(table for table in missing if table not in publication.tables)
    if new:
        statements.append(f"ALTER PUBLICATION {name} ADD TABLE {', '.join(map(_path, new))}")
    if keeps_slot and len(statements) > bool(new):
        raise SlotError(
            f"the publication {wanted.publication} does not publish all that the query reads, and the slot"
            f" {wanted.slot} may have passed changes already. Change the publication, drop the slot, and start the"
            " query over with a new checkpoint, which reads a new snapshot.",
            (*statements, _drop(wanted.slot)),
        )
    if statements and not publication.is_owner:
        owner = f"the role {server.role} does not own the publication {wanted.publication}"
        raise _refusal(wanted, owner, tuple(statements), ())
    return _allowed(wanted, server, [table for table in tables if table.name in new], tuple(statements)), new


def _allowed(wanted: Wanted, server: Server, tables: Sequence[Table], statements: tuple[str, ...]) -> tuple[str, ...]:
    if statements and wanted.publication_mode is PublicationMode.DISABLED:
        raise _refusal(wanted, "publication.autocreate.mode is disabled", statements, ())
    foreign = [_shown(table.name) for table in tables if not table.is_owner]
    if statements and foreign:
        raise _refusal(wanted, f"the role {server.role} does not own {', '.join(foreign)}", statements, ())
    return statements


def _refusal(wanted: Wanted, reason: str, statements: tuple[str, ...], grants: tuple[str, ...]) -> SlotError:
    either = "" if not grants else ", or allow it to the role"
    return SlotError(
        f"the publication {wanted.publication} is missing or does not have all tables, and {reason}: run the statement"
        f" as an owner of the tables{either}, before the query starts.",
        (*statements, *grants),
    )


def _create_slot(wanted: Wanted, server: Server) -> str:
    create = f"CREATE_REPLICATION_SLOT {_quoted(wanted.slot)} LOGICAL {PLUGIN}"
    if server.version < _OPTIONS_VERSION:
        return f"{create} {'EXPORT' if wanted.snapshot else 'NOEXPORT'}_SNAPSHOT"
    options = [f"SNAPSHOT '{'export' if wanted.snapshot else 'nothing'}'"]
    if wanted.failover:
        if server.version < _FAILOVER_VERSION:
            raise SlotError(
                f"a slot that survives a failover needs PostgreSQL 17, and the server is {server.version // 10_000}:"
                " set slot.failover to false"
            )
        options.append("FAILOVER true")
    return f"{create} ({', '.join(options)})"


def _warnings(slot: Slot) -> tuple[str, ...]:
    if slot.wal_status == "unreserved":
        return (
            f"the server keeps more log for the slot {slot.name} than max_slot_wal_keep_size, and removes it at its"
            " next checkpoint unless the query catches up",
        )
    return ()


def _drop(slot: str) -> str:
    return f"SELECT pg_drop_replication_slot('{slot}')"


def _quoted(name: str) -> str:
    return quote_for_display(Dialect.POSTGRES, name)


def _path(name: TableName) -> str:
    return ".".join(map(_quoted, name))


def _shown(name: TableName) -> str:
    return ".".join(name)
