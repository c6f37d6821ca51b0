"""Table: the SQL that reads the state of a server and a slot, and that reads and advances a slot.

All statements have psycopg's placeholders. LSNs come back as bigint. The columns of each query are the fields of the
value in `setup_state.py` that it fills, in their order.
Source: PostgreSQL's manual, chapter "System Views", sections "System Administration Functions" and
"pg_publication_tables".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.spark.connectors.postgres.changes import TableName
from barnabas.spark.connectors.postgres.lsn import format_lsn
from barnabas.spark.connectors.postgres.text_columns import SESSION_SETTINGS
from barnabas.spark.connectors.sql.dialects import (
    Dialect,
    Statement,
    quote_for_display,
    quote_identifier,
    quote_table,
)

_INVALIDATION_VERSION: Final = 170_000
_BASE: Final = "'0/0'::pg_lsn"

_KEY_OF: Final = "a.attnum = ANY(coalesce(({0}.indkey::int2[])[0:{0}.indnkeyatts - 1], ARRAY[]::int2[]))"
"""Whether a column is in the key of an index: the columns of INCLUDE are not."""

TIMELINE: Final = "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"
"""The timeline of the log that a server writes, with which the names of the log's files begin. A standby has none, and
pg_control_checkpoint() has that of the last checkpoint, which may be minutes older than a promotion."""

SERVER: Final = Statement(
    "SELECT current_setting('server_version_num')::int, (SELECT system_identifier FROM pg_control_system()),"
    " current_setting('wal_level'), pg_is_in_recovery(), current_setting('max_replication_slots')::int,"
    " (SELECT count(*) FROM pg_replication_slots)::int,"
    f" CASE WHEN pg_is_in_recovery() THEN 0 ELSE (pg_current_wal_flush_lsn() - {_BASE})::bigint END,"
    " current_database(), current_user::text,"
    " (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user),"
    " has_database_privilege(current_database(), 'CREATE'),"
    f" CASE WHEN pg_is_in_recovery() THEN 0 ELSE {TIMELINE} END"
)
"""The fields of Server."""

SNAPSHOT: Final = Statement(
    "SELECT pg_snapshot_xmax(s)::text::bigint, ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(s) AS x)"
    " FROM pg_current_snapshot() AS s"
)
"""(the first transaction id that is not visible, the ids below it that run), with 64 bits."""

LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '10s'"
"""A statement of this transaction that waits longer for a lock fails."""

FLUSH_LSN: Final = Statement(f"SELECT (pg_current_wal_flush_lsn() - {_BASE})::bigint")


def session_settings() -> Statement:
    """Makes the text form of values the one that `text_columns.py` reads. To be run once in each session."""
    calls = ", ".join(["set_config(%s, %s, false)"] * len(SESSION_SETTINGS))
    return Statement(f"SELECT {calls}", tuple(part for setting in SESSION_SETTINGS.items() for part in setting))


def read_slot(version: int, name: str) -> Statement:
    """The fields of Slot; no row if there is no such slot. `version` is server_version_num."""
    reason = "invalidation_reason" if version >= _INVALIDATION_VERSION else "NULL::text"
    return Statement(
        "SELECT slot_name::text, slot_type, plugin::text, database::text, temporary, active_pid, wal_status,"
        f" {reason}, coalesce(two_phase, false), (confirmed_flush_lsn - {_BASE})::bigint"
        " FROM pg_replication_slots WHERE slot_name = %s",
        (name,),
    )


def read_publication(name: str) -> Statement:
    """(name, is_owner, all_tables, insert, update, delete, truncate, via_root); no row if there is none."""
    return Statement(
        "SELECT pubname::text, pg_has_role(pubowner, 'USAGE'), puballtables, pubinsert, pubupdate, pubdelete,"
        " pubtruncate, pubviaroot FROM pg_publication WHERE pubname = %s",
        (name,),
    )


def read_published_tables(name: str) -> Statement:
    """(schema, table) of each table of a publication, and of each partitioned table that it names."""
    return Statement(
        "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = %s"
        " UNION SELECT n.nspname::text, c.relname::text FROM pg_publication_rel r"
        " JOIN pg_publication p ON p.oid = r.prpubid JOIN pg_class c ON c.oid = r.prrelid"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %s",
        (name, name),
    )


def read_published_parts(name: str) -> Statement:
    """(schema, table, columns, other columns of the table, condition of the row filter or NULL) of each table of a
    publication, from PostgreSQL 15 on.
    """
    return Statement(
        "SELECT p.schemaname::text, p.tablename::text, p.attnames::text[], ARRAY(SELECT a.attname::text"
        " FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = p.schemaname AND c.relname = p.tablename AND a.attnum > 0 AND NOT a.attisdropped"
        " AND a.attgenerated = '' AND a.attname <> ALL (p.attnames)), p.rowfilter"
        " FROM pg_publication_tables p WHERE p.pubname = %s",
        (name,),
    )


def read_tables(names: Sequence[TableName]) -> Statement:
    """(schema, table, kind, persistence, identity, has_identity, may_select, is_owner, unlike_partitions) of those
    tables that exist.

    A primary key that is deferrable does not count as a replica identity.
    """
    return Statement(
        "SELECT n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, c.relreplident::text,"
        " CASE c.relreplident WHEN 'd' THEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary"
        " AND i.indimmediate)"
        " WHEN 'i' THEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident) ELSE false END,"
        " has_table_privilege(c.oid, 'SELECT'), pg_has_role(c.relowner, 'USAGE'),"
        " ARRAY(SELECT quote_ident(pn.nspname) || '.' || quote_ident(p.relname) FROM pg_partition_tree(c.oid) tree"
        " JOIN pg_class p ON p.oid = tree.relid JOIN pg_namespace pn ON pn.oid = p.relnamespace"
        " WHERE tree.isleaf AND p.oid <> c.oid AND p.relreplident NOT IN ('f', c.relreplident) ORDER BY 1)"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN unnest(%s::text[], %s::text[]) AS wanted(s, t) ON n.nspname = wanted.s AND c.relname = wanted.t",
        ([schema for schema, _ in names], [table for _, table in names]),
    )


def read_oids(names: Sequence[TableName]) -> Statement:
    """(schema.table, oid) of those tables that exist."""
    return Statement(
        "SELECT wanted.s || '.' || wanted.t, c.oid::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN unnest(%s::text[], %s::text[]) AS wanted(s, t) ON n.nspname = wanted.s AND c.relname = wanted.t"
        " ORDER BY 1",
        ([schema for schema, _ in names], [table for _, table in names]),
    )


def peek(slot: str, publication: str, end: int) -> Statement:
    """(lsn, xid, data) of the changes from the slot's confirmed position on, up to the record that reaches `end`.

    The rows may begin before the batch and go beyond its end; `TransactionReader` drops these.
    """
    return Statement(
        f"SELECT (lsn - {_BASE})::bigint, xid::text::bigint, data FROM pg_logical_slot_peek_binary_changes("
        "%s, %s::pg_lsn, NULL, 'proto_version', '1', 'publication_names', %s, 'messages', 'true')",
        (slot, format_lsn(end), quote_for_display(Dialect.POSTGRES, publication)),
    )


def advance(slot: str, to: int) -> Statement:
    """Give up the changes up to `to`, which is above the slot's confirmed position and not above the flush position."""
    return Statement("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (slot, format_lsn(to)))


def select_by_keys(
    table: TableName, columns: Sequence[str], width: int, keys: Sequence[tuple[object, ...]]
) -> Statement:
    """The columns of the rows with these keys; the first `width` columns are the key."""
    quoted = [quote_identifier(Dialect.POSTGRES, column) for column in columns]
    marks = ", ".join([f"({', '.join(['%s'] * width)})"] * len(keys))
    return Statement(
        f"SELECT {', '.join(quoted)} FROM {quote_table(Dialect.POSTGRES, table)}"
        f" WHERE ({', '.join(quoted[:width])}) IN ({marks})",
        tuple(value for key in keys for value in key),
    )


def lock_table(table: TableName) -> str:
    """Keep the table's columns as they are until the end of the transaction."""
    path = ".".join(quote_for_display(Dialect.POSTGRES, part) for part in table)
    return f"LOCK TABLE {path} IN ACCESS SHARE MODE"


def probe(slot: str, publication: str, end: int) -> Statement:
    """One row if the slot has a change before `end`: the server stops at the end of the first transaction with one."""
    return Statement(
        "SELECT 1 FROM pg_logical_slot_peek_binary_changes("
        "%s, %s::pg_lsn, 1, 'proto_version', '1', 'publication_names', %s, 'messages', 'true') LIMIT 1",
        (slot, format_lsn(end), quote_for_display(Dialect.POSTGRES, publication)),
    )


def list_tables() -> Statement:
    """(schema, table) of all tables of users, partitioned ones as one."""
    return Statement(
        "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'"
        " AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' ORDER BY 1, 2"
    )


def read_columns_of(name: TableName) -> Statement:
    """The columns that the changes of a table have: (name, type oid, typmod, in replica identity, in primary key,
    schema and name of the type, table oid, identity, relkind). A domain has the name of its base type.
    """
    return Statement(
        "WITH RECURSIVE base(oid, base) AS (SELECT DISTINCT a.atttypid, a.atttypid FROM pg_attribute a"
        " JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped"
        " UNION ALL SELECT b.oid, t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.base WHERE t.typtype = 'd')"
        " SELECT a.attname::text, a.atttypid::bigint, a.atttypmod, CASE c.relreplident WHEN 'f' THEN true"
        f" WHEN 'd' THEN coalesce(p.indimmediate, false) AND {_KEY_OF.format('p')}"
        f" WHEN 'i' THEN {_KEY_OF.format('i')} ELSE false END,"
        f" {_KEY_OF.format('p')}, tn.nspname::text, t.typname::text, c.oid::bigint,"
        " c.relreplident::text, c.relkind::text"
        " FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN base b ON b.oid = a.atttypid JOIN pg_type t ON t.oid = b.base AND t.typtype <> 'd'"
        " JOIN pg_namespace tn ON tn.oid = t.typnamespace"
        " LEFT JOIN pg_index p ON p.indrelid = c.oid AND p.indisprimary"
        " LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisreplident"
        " WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''"
        " ORDER BY a.attnum",
        (*name, *name),
    )


def read_keys(names: Sequence[TableName]) -> Statement:
    """(schema, table, column, whether it is in the primary key) of the columns of tables, in their order."""
    return Statement(
        f"SELECT n.nspname::text, c.relname::text, a.attname::text, {_KEY_OF.format('p')}"
        " FROM unnest(%s::text[], %s::text[]) AS wanted(s, t) JOIN pg_namespace n ON n.nspname = wanted.s"
        " JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.t"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''"
        " LEFT JOIN pg_index p ON p.indrelid = c.oid AND p.indisprimary ORDER BY 1, 2, a.attnum",
        ([schema for schema, _ in names], [table for _, table in names]),
    )


def read_rewritten(names: Sequence[TableName]) -> Statement:
    """(schema, table) of those tables, or their partitions, whose files are not those of the session's snapshot.

    `pg_relation_filenode` sees the current catalog, and the query that of the snapshot.
    """
    return Statement(
        "SELECT n.nspname::text, c.relname::text FROM unnest(%s::text[], %s::text[]) AS wanted(s, t)"
        " JOIN pg_namespace wn ON wn.nspname = wanted.s"
        " JOIN pg_class w ON w.relnamespace = wn.oid AND w.relname = wanted.t"
        " JOIN LATERAL (SELECT w.oid AS member UNION SELECT relid FROM pg_partition_tree(w.oid)) AS tree ON true"
        " JOIN pg_class c ON c.oid = tree.member AND c.relkind = 'r' JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode",
        ([schema for schema, _ in names], [table for _, table in names]),
    )
