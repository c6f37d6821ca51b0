"""Shell: reads the state of a server, a slot, a publication and tables from the catalog (`setup_state.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.spark.connectors.postgres.changes import TableName
from barnabas.spark.connectors.postgres.errors import NoTableError, SlotError
from barnabas.spark.connectors.postgres.lsn import parse_lsn
from barnabas.spark.connectors.postgres.messages import Column, Relation, ReplicaIdentity, TypeName
from barnabas.spark.connectors.postgres.options import PostgresOptions
from barnabas.spark.connectors.postgres.session import Session
from barnabas.spark.connectors.postgres.setup_state import (
    PrimaryKey,
    Publication,
    PublishedPart,
    Server,
    Slot,
    Table,
)
from barnabas.spark.connectors.postgres.statements import (
    SERVER,
    list_tables,
    read_columns_of,
    read_keys,
    read_oids,
    read_publication,
    read_published_parts,
    read_published_tables,
    read_slot,
    read_tables,
)
from barnabas.spark.connectors.postgres.types import FIRST_NAMED_TYPE

_PARTS_VERSION = 150_000
_OPERATIONS = ("insert", "update", "delete", "truncate")


def load_server(session: Session) -> Server:
    (row,) = session.rows(SERVER, "reading the settings of the server")
    return Server(*row)


def load_oids(session: Session, names: Sequence[TableName]) -> tuple[tuple[str, str], ...]:
    """The OIDs of those tables that exist, by schema.table."""
    return tuple(
        sorted((name, oid) for name, oid in session.rows(read_oids(names), "reading the numbers of the tables"))
    )


def load_switches(options: PostgresOptions, timeline: int) -> tuple[tuple[int, int], ...]:
    """Each earlier timeline of the server, and where the log left it."""
    session = Session(options, replication=True)
    try:
        _, content = session.command(f"TIMELINE_HISTORY {timeline}", f"reading the history of the timeline {timeline}")
    finally:
        session.close()
    text = content.decode(errors="replace") if isinstance(content, bytes) else str(content)
    lines = [line.split("\t") for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return tuple((int(fields[0]), parse_lsn(fields[1])) for fields in lines)


def load_slot(session: Session, version: int, name: str) -> Slot | None:
    rows = session.rows(read_slot(version, name), f"reading the state of the slot {name}")
    return Slot(*rows[0]) if rows else None


def load_publication(session: Session, name: str) -> Publication | None:
    doing = f"reading the publication {name}"
    rows = session.rows(read_publication(name), doing)
    if not rows:
        return None
    found, is_owner, all_tables, *flags, via_root = rows[0]
    operations = frozenset(word for word, flag in zip(_OPERATIONS, flags, strict=True) if flag)
    tables = frozenset((schema, table) for schema, table in session.rows(read_published_tables(name), doing))
    return Publication(found, is_owner, all_tables, operations, via_root, tables)


def load_published_parts(session: Session, name: str) -> dict[TableName, PublishedPart]:
    """What a publication has of its tables. Empty before PostgreSQL 15, when a publication had whole tables."""
    if session.connection.info.server_version < _PARTS_VERSION:
        return {}
    rows = session.rows(read_published_parts(name), f"reading the columns of the publication {name}")
    return {
        (schema, table): PublishedPart(frozenset(columns), tuple(left_out), where)
        for schema, table, columns, left_out, where in rows
    }


def load_tables(session: Session, names: Sequence[TableName]) -> list[Table]:
    tables = []
    for row in session.rows(read_tables(names), "reading the tables"):
        schema, table, kind, persistence, identity, has_identity, may_select, is_owner, unlike = row
        found = ReplicaIdentity(identity)
        tables.append(
            Table((schema, table), kind, persistence, found, has_identity, may_select, is_owner, tuple(unlike))
        )
    return tables


def load_primary_keys(session: Session, names: Sequence[TableName]) -> dict[TableName, PrimaryKey]:
    """The primary keys of those tables that have one."""
    columns: dict[TableName, list[tuple[str, bool]]] = {}
    for schema, table, column, in_key in session.rows(read_keys(names), "reading the primary keys"):
        columns.setdefault((schema, table), []).append((column, in_key))
    keys = {
        name: PrimaryKey(
            tuple(column for column, _ in found), tuple(at for at, (_, in_key) in enumerate(found) if in_key)
        )
        for name, found in columns.items()
    }
    return {name: key for name, key in keys.items() if key.places}


def wanted_tables(session: Session, options: PostgresOptions) -> tuple[TableName, ...]:
    """The tables that the options select, in the order of their names. Raises SlotError if a pattern selects none."""
    found = [(schema, table) for schema, table in session.rows(list_tables(), "listing the tables")]
    for pattern in options.capture.given.get("table.include.list"):
        if not any(pattern.fullmatch(f"{schema}.{table}") for schema, table in found):
            known = ", ".join(f"{schema}.{table}" for schema, table in found[:20]) or "none"
            raise SlotError(
                f"table.include.list: {pattern.pattern} matches no table of the database"
                f" {options.connection['dbname']}, which has {known}: give schema.table"
            )
    return tuple(sorted((schema, table) for schema, table in found if options.wants_table(schema, table)))


class TableDescription:
    """A table as the catalog describes it: the same values as a message `R`, and its primary key."""

    def __init__(self, relation: Relation, types: dict[int, TypeName], primary_key: tuple[int, ...], kind: str) -> None:
        self.relation = relation
        self.types = types
        self.primary_key = primary_key
        self.kind = kind

    def key(self, configured: tuple[str, ...] | None) -> tuple[int, ...]:
        """The indexes of the key columns, as `TransactionReader` finds them in the changes."""
        if configured is not None:
            names = [column.name for column in self.relation.columns]
            missing = [name for name in configured if name not in names]
            if missing:
                raise SlotError(
                    f"the table {self.relation.schema}.{self.relation.table} has no column {missing[0]}, which"
                    " message.key.columns names as a part of its key: correct the option"
                )
            return tuple(names.index(name) for name in configured)
        if self.relation.identity in (ReplicaIdentity.FULL, ReplicaIdentity.NOTHING):
            return self.primary_key
        return tuple(place for place, column in enumerate(self.relation.columns) if column.in_key)


def describe_table(session: Session, name: TableName, published: PublishedPart | None = None) -> TableDescription:
    """The columns of a table as the session's transaction sees them, or those of them that are published. Raises
    NoTableError if there is no such table.
    """
    rows = session.rows(read_columns_of(name), f"reading the columns of {'.'.join(name)}")
    if published is not None:
        rows = [row for row in rows if row[0] in published.columns]
    if not rows:
        raise NoTableError(f"there is no table {'.'.join(name)}, or it has no columns: check its name")
    columns, types, primary_key = [], {}, []
    for place, (column, oid, typmod, in_identity, in_primary_key, type_schema, type_name, _, _, _) in enumerate(rows):
        columns.append(Column(column, oid, typmod, in_identity))
        if oid >= FIRST_NAMED_TYPE:
            types[oid] = TypeName(oid, type_schema, type_name)
        if in_primary_key:
            primary_key.append(place)
    *_, table_oid, identity, kind = rows[0]
    relation = Relation(table_oid, name[0], name[1], ReplicaIdentity(identity), tuple(columns))
    return TableDescription(relation, types, tuple(primary_key), kind)
