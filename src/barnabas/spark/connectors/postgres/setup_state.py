"""Value: what a server, a slot, a publication and tables are like at the start of a query, and what the query wants.

The shell reads these values from the catalog; `slot.py` decides.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from barnabas.spark.connectors.postgres.changes import TableName
from barnabas.spark.connectors.postgres.messages import ReplicaIdentity


class Server(Struct, frozen=True):
    """The server, the database and the role of the session.

    `version` is `server_version_num`; `slots` counts the slots that exist; `flush_lsn` is pg_current_wal_flush_lsn();
    `system_identifier` is that of pg_control_system(). `may_replicate` is true for superusers too, `may_create` is the
    privilege CREATE on the database.
    """

    version: int
    system_identifier: int
    wal_level: str
    in_recovery: bool
    slots_max: int
    slots: int
    flush_lsn: int
    database: str
    role: str
    may_replicate: bool
    may_create: bool
    timeline: int = 0
    """The timeline of the log that the server writes; 0 for a standby."""
    switches: tuple[tuple[int, int], ...] = ()
    """For each earlier timeline of the server, where the log left it. Read if a position has another timeline."""


class Slot(Struct, frozen=True):
    """A row of pg_replication_slots. Columns that the server's version does not have are None or false."""

    name: str
    slot_type: str
    plugin: str | None
    database: str | None
    temporary: bool
    active_pid: int | None
    wal_status: str | None
    invalidation_reason: str | None
    two_phase: bool
    confirmed_flush_lsn: int | None


class Publication(Struct, frozen=True):
    """A publication. `tables` has those of pg_publication_tables, and the partitioned tables that it names."""

    name: str
    is_owner: bool
    all_tables: bool
    operations: frozenset[str]
    via_root: bool
    tables: frozenset[TableName]


class PublishedPart(Struct, frozen=True):
    """What a publication has of a table: the names of its columns, and the condition of its rows, as SQL. `left_out`
    has the other columns of the table.
    """

    columns: frozenset[str]
    left_out: tuple[str, ...] = ()
    rows: str | None = None


class Table(Struct, frozen=True):
    """A table that the query reads.

    `kind` is pg_class.relkind, `persistence` pg_class.relpersistence. `has_identity` says whether the columns of the
    replica identity exist: the primary key for DEFAULT, the index for INDEX. `unlike_partitions` has the quoted names
    of partitions whose replica identity is another one, and not FULL.
    """

    name: TableName
    kind: str
    persistence: str
    identity: ReplicaIdentity
    has_identity: bool
    may_select: bool
    is_owner: bool
    unlike_partitions: tuple[str, ...] = ()


class PrimaryKey(Struct, frozen=True):
    """The primary key that the catalog has for a table. `columns` has the names of all columns of the table, in their
    order. `places` has the indexes of the key's columns in `columns`.
    """

    columns: tuple[str, ...]
    places: tuple[int, ...]


class PublicationMode(StrEnum):
    """Debezium's `publication.autocreate.mode`, without the mode that publishes all tables."""

    FILTERED = "filtered"  # create the publication, and add tables to it
    DISABLED = "disabled"  # only use what exists


class Checkpoint(Struct, frozen=True):
    """Where the query stands: of the server with this identifier, all that committed before `lsn` is read.

    `timeline` is that of the log up to there, 0 if it is not known (positions of earlier releases). `tables` has the
    OIDs of the captured tables, as (schema.table, oid); a publication names tables by their OIDs. `starts` counts how
    often the query has started anew because its position was lost.
    """

    lsn: int
    system_identifier: int
    timeline: int = 0
    tables: tuple[tuple[str, str], ...] = ()
    starts: int = 0


class Wanted(Struct, frozen=True):
    """What the query wants to read.

    `checkpoint` is None before the first batch. `created_slot` says that an earlier start of this same query was to
    create the slot for a snapshot, so that it may be dropped as long as there is no checkpoint. `snapshot` says that
    the first batches are the rows of the tables. `truncates` says that the publication must have truncates. `lost` is
    the position of a query that starts anew because of it, which then has no checkpoint.
    """

    slot: str
    publication: str
    tables: tuple[TableName, ...]
    publication_mode: PublicationMode = PublicationMode.FILTERED
    snapshot: bool = True
    checkpoint: Checkpoint | None = None
    created_slot: bool = False
    failover: bool = False
    truncates: bool = False
    lost: Checkpoint | None = None


class Setup(Struct, frozen=True):
    """What to do before the first batch, in this order: `statements`, then drop the slot, then create it.

    `create_slot` is a command of the replication protocol, which answers with the name of an exported snapshot and the
    position from which the slot has changes; None means that the slot is used as it is. `new_tables` were not in the
    publication before, so that the slot has no older changes of them. `warnings` are for the log.
    """

    statements: tuple[str, ...] = ()
    drop_slot: bool = False
    create_slot: str | None = None
    new_tables: tuple[TableName, ...] = ()
    warnings: tuple[str, ...] = ()


class BatchPlan(Struct, frozen=True):
    """A micro-batch reads the transactions whose commit records start in [start, end).

    First the slot is advanced to `advance_to`, if that is set.
    """

    start: int
    end: int
    advance_to: int | None
