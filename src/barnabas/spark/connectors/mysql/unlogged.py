"""Machine: changes that a server does not write into its binlog, or writes so that they cannot be read.

| Cause | Effect | What is done |
|---|---|---|
| a replica with log_replica_updates=OFF | the changes of its source are missing | refused |
| binlog_do_db, binlog_ignore_db | the changes of whole databases are missing | refused |
| WITH SYSTEM VERSIONING (MariaDB) | rows of the history are among the rows; a DELETE is an UPDATE | refused |
| ON DELETE, ON UPDATE of a foreign key | what InnoDB changes in the child is missing | a warning |

MySQL 9.6 and newer have the variable innodb_native_foreign_keys; while it is OFF, the server itself carries out what a
foreign key says, and writes it into the binlog. Sources: the manuals of both servers, "Replication and Binary Logging
Options", "System-Versioned Tables", "Foreign Keys"; the binlogs of MariaDB 10.11 and MySQL 9.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from barnabas.spark.connectors.mysql.errors import ServerSetupError

SYSTEM_VERSIONED: Final = "SYSTEM VERSIONED"
"""The `table_type` of a table WITH SYSTEM VERSIONING in information_schema.tables."""

_FOREIGN_KEY: Final = re.compile(
    r"^\s*CONSTRAINT (?P<name>`(?:[^`]|``)*`|\S+) FOREIGN KEY \(.*\) REFERENCES .*?(?P<rules>(?: ON (?:DELETE|UPDATE)"
    r" (?:CASCADE|SET NULL|SET DEFAULT|RESTRICT|NO ACTION))+),?\s*$",
    re.MULTILINE,
)
_CHANGING_RULE: Final = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")


class BinlogScope(Struct, frozen=True):
    """Whose changes a server writes into its binlog.

    `is_replica` is None if the user may not ask, or if replication is stopped. The databases are those of binlog_do_db
    and binlog_ignore_db.
    """

    is_replica: bool | None = False
    do_databases: tuple[str, ...] = ()
    ignored_databases: tuple[str, ...] = ()


def logs_replicated(values: Mapping[str, str]) -> bool:
    """Whether a server with these variables writes what it replicates into its binlog."""
    setting = values.get("log_replica_updates", values.get("log_slave_updates", "ON"))
    return setting.upper() in ("ON", "1")


def scope_problems(
    values: Mapping[str, str], scope: BinlogScope, databases: Iterable[str], *, mariadb: bool
) -> tuple[list[str], list[str]]:
    """What is wrong with the scope of a binlog, and warnings. `databases` are those whose tables are captured."""
    problems, warnings = [], []
    if not logs_replicated(values):
        name = "log_replica_updates" if "log_replica_updates" in values else "log_slave_updates"
        remedy = f"write {name}=ON below [mysqld] in my.cnf and restart the server, or capture its source"
        if scope.is_replica:
            problems.append(
                f"the server is a replica with {name}=OFF, so that the changes that it replicates are not in its "
                f"binlog: {remedy}"
            )
        elif scope.is_replica is None and (not mariadb or values.get("gtid_slave_pos")):
            grant = "REPLICA MONITOR" if mariadb else "REPLICATION CLIENT"
            warnings.append(
                f"{name} is OFF, and the server may be a replica: replication is stopped, or the user may not ask "
                f"(GRANT {grant} ON *.*). What a replica replicates would be missing: {remedy}"
            )
    for database in databases:
        if scope.do_databases and database not in scope.do_databases:
            setting, remedy = "binlog_do_db", f"add binlog_do_db={database} to my.cnf, or remove all its binlog_do_db"
        elif not scope.do_databases and database in scope.ignored_databases:
            setting, remedy = "binlog_ignore_db", f"remove binlog_ignore_db={database} from my.cnf"
        else:
            continue
        problems.append(
            f"{setting} keeps the changes of the database {database} out of the binlog: {remedy}, and restart the "
            "server; or leave the database out with database.exclude.list"
        )
    return problems, warnings


def versioned_error(tables: Iterable[tuple[str, str]]) -> ServerSetupError:
    """The error for captured tables WITH SYSTEM VERSIONING, as (database, table)."""
    pairs = list(tables)
    names = ", ".join(f"{database}.{table}" for database, table in pairs)
    database, table = pairs[0]
    return ServerSetupError(
        f"WITH SYSTEM VERSIONING, the binlog has rows of the history, and deletes as updates, which Barnabas does not "
        f"read: {names}. Leave each of these tables out with table.exclude.list; or run ALTER TABLE "
        f"`{database}`.`{table}` DROP SYSTEM VERSIONING, and start a query that has begun over with a new checkpoint, "
        "an empty stagingLocation and a new snapshot"
    )


def writes_cascades(values: Mapping[str, str]) -> bool:
    """Whether a server with these variables writes what foreign keys change into its binlog."""
    return values.get("innodb_native_foreign_keys", "ON").upper() == "OFF"


def cascade_warnings(database: str, table: str, definition: str) -> list[str]:
    """A warning for each foreign key that changes rows of a table. `definition` is the text of SHOW CREATE TABLE."""
    warnings = []
    for found in _FOREIGN_KEY.finditer(definition):
        rules = _CHANGING_RULE.findall(found["rules"])
        if rules:
            name = found["name"].strip("`").replace("``", "`")
            warnings.append(
                f"the foreign key {name} of {database}.{table} has {' '.join(rules)}: InnoDB does not write these "
                f"changes of {database}.{table} into the binlog, so that they have no events. Let the application "
                "change these rows, or use MySQL 9.6 or newer with innodb_native_foreign_keys=OFF"
            )
    return warnings
