"""Machine: from a server's variables and grants to how it is captured, or to the statements that must be run first.

| Variable | MySQL 8 | MariaDB 10.5 | Needed |
|---|---|---|---|
| log_bin | ON | OFF | ON (configuration file, restart) |
| binlog_format | ROW | MIXED | ROW |
| binlog_row_image | FULL | FULL | FULL |
| binlog_row_metadata | MINIMAL | NO_LOG | FULL |
| binlog_row_value_options | empty | - | empty |
| gtid_mode | OFF | always on | any; ON to survive a failover |
| log_replica_updates | ON | OFF | ON if the server is a replica |
| binlog_expire_logs_seconds, expire_logs_days | 30 days | never | longer than the longest pause of the query |

Sources: MySQL 8.4's manual, "Binary Logging Options and Variables"; MariaDB's manual, "Replication and Binary Log
System Variables"; the privileges of COM_BINLOG_DUMP in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from barnabas.spark.connectors.mysql.errors import (
    START_OVER,
    BinlogPurgedError,
    HistoryLostError,
    MysqlSourceError,
    ServerSetupError,
)
from barnabas.spark.connectors.mysql.positions import BinlogPosition, GtidSet
from barnabas.spark.connectors.mysql.unlogged import BinlogScope, scope_problems

VARIABLES: Final = (
    "version",
    "server_id",
    "server_uuid",
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "binlog_checksum",
    "binlog_expire_logs_seconds",
    "expire_logs_days",
    "binlog_storage_engine",
    "gtid_mode",
    "gtid_purged",
    "gtid_slave_pos",
    "log_replica_updates",
    "log_slave_updates",
    "innodb_native_foreign_keys",
)
"""The global variables that decide how a server is captured. Each version of a server has only some of them."""

EXPIRY_SECONDS_MIN: Final = 24 * 3600
"""The shortest expiry of binlogs that is accepted by default."""

_WHOLE_SCOPE: Final = BinlogScope()
_MYSQL_MIN: Final = (8, 0, 1)
_MARIADB_MIN: Final = (10, 5, 0)
_REPLICATION_SLAVE: Final = frozenset(("REPLICATION SLAVE", "REPLICATION REPLICA"))
_REPLICATION_CLIENT: Final = frozenset(("REPLICATION CLIENT", "BINLOG MONITOR", "SUPER"))
_GRANT: Final = re.compile(r"GRANT\s+(.+?)\s+ON\s+(.+?)\s+TO\s", re.IGNORECASE | re.DOTALL)
_ER_SOURCE_FATAL_ERROR_READING_BINLOG: Final = 1236
_PURGED: Final = re.compile(
    r"purged|could not find first log file|could not find gtid state|not in the (master|source)'s binlog"
    r"|missing.*transactions|not found in (the )?binlog",
    re.IGNORECASE,
)


class ServerPlan(Struct, frozen=True):
    """How a server is captured. `warnings` are sentences about what works, and may stop working.

    `server_uuid` names the server; for MariaDB, which has none, it is made of the server_id.
    """

    mariadb: bool
    version: tuple[int, ...]
    server_uuid: str
    uses_gtids: bool
    checksums: bool
    warnings: tuple[str, ...] = ()


def server_version(variables: Mapping[str, str]) -> tuple[bool, tuple[int, ...]]:
    """Whether a server is MariaDB, and its version, from its variables."""
    text = variables.get("version") or ""
    return "mariadb" in text.lower(), tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def status_statement(version: tuple[int, ...], *, mariadb: bool) -> str:
    """The statement for the end of the binlog and for its filters."""
    return "SHOW BINARY LOG STATUS" if not mariadb and version >= (8, 2) else "SHOW MASTER STATUS"


def judge(
    variables: Mapping[str, str],
    grants: Iterable[str],
    databases: Iterable[str] = (),
    *,
    scope: BinlogScope = _WHOLE_SCOPE,
    expiry_seconds_min: int = EXPIRY_SECONDS_MIN,
) -> ServerPlan:
    """The plan for a server.

    `variables` are of SHOW GLOBAL VARIABLES, `grants` the lines of SHOW GRANTS (on MySQL 8 with USING the roles), and
    `databases` those whose tables are captured. Raises ServerSetupError, which lists everything that is wrong at once.
    """
    values = {name.lower(): value or "" for name, value in variables.items()}
    mariadb, version = server_version(values)
    oldest = _MARIADB_MIN if mariadb else _MYSQL_MIN
    if version < oldest:
        name = "MariaDB" if mariadb else "MySQL"
        raise ServerSetupError(
            f"the server is version {values.get('version') or 'unknown'}; change capture "
            f"needs {name} {'.'.join(map(str, oldest))} or "
            "newer, which writes the names of columns into the binlog: upgrade the server, or use polling"
        )
    databases = list(databases)
    unlogged, warnings = scope_problems(values, scope, databases, mariadb=mariadb)
    problems = _problems(values, mariadb) + unlogged + _missing_privileges(grants, databases, mariadb)
    seconds = _expiry_seconds(values)
    if 0 < seconds < expiry_seconds_min:
        seconds_name = not mariadb or "binlog_expire_logs_seconds" in values  # MariaDB has it from 10.6 on
        setting = ("binlog_expire_logs_seconds", "604800") if seconds_name else ("expire_logs_days", "7")
        problems.append(
            f"binlogs are deleted after {seconds} seconds, so that a query that pauses longer loses changes: "
            + _set(*setting, mariadb)
        )
    if problems:
        raise ServerSetupError("the server cannot be captured yet:\n" + "\n".join(f"- {line}" for line in problems))
    gtid_mode = values.get("gtid_mode", "OFF").upper()
    uses_gtids = mariadb or gtid_mode == "ON"
    if not uses_gtids:
        warnings.append(
            f"gtid_mode is {gtid_mode}: positions are files of this server only, and a failover needs a new snapshot. "
            "To change it, set enforce_gtid_consistency=ON, then gtid_mode to OFF_PERMISSIVE, ON_PERMISSIVE and ON"
        )
    return ServerPlan(
        mariadb,
        version,
        f"server_id {values.get('server_id', '1')}" if mariadb else values.get("server_uuid", ""),
        uses_gtids,
        values.get("binlog_checksum", "CRC32").upper() != "NONE",
        tuple(warnings),
    )


def _is_on(value: str) -> bool:
    return value.upper() in ("ON", "1", "TRUE", "YES")


def _set(name: str, value: str, mariadb: bool) -> str:
    """The statement that sets a variable for good."""
    if mariadb:
        return f"SET GLOBAL {name} = {value}; and write {name}={value.strip(chr(39))} below [mariadb] in my.cnf"
    return f"SET PERSIST {name} = {value};"


def _problems(values: Mapping[str, str], mariadb: bool) -> list[str]:
    """What is wrong with the variables, each with what to run."""
    problems = []
    if not _is_on(values.get("log_bin", "OFF")):
        problems.append(
            "log_bin is OFF: write log_bin=mysql-bin and server_id=1 below [mysqld] in my.cnf, and restart the server"
        )
    if values.get("server_id", "1") == "0":
        problems.append(f"server_id is 0, so that the server refuses replicas: {_set('server_id', '1', mariadb)}")
    reconnect = " and reconnect the writing sessions, which keep the old value"
    for name, wanted, default, sessions in (
        ("binlog_format", "ROW", "MIXED" if mariadb else "ROW", True),
        ("binlog_row_image", "FULL", "FULL", True),
        ("binlog_row_metadata", "FULL", "NO_LOG" if mariadb else "MINIMAL", False),
    ):
        value = values.get(name, default).upper()
        if value != wanted:
            hint = reconnect if sessions else ""
            problems.append(f"{name} is {value}, not {wanted}: {_set(name, repr(wanted), mariadb)}{hint}")
    if "PARTIAL_JSON" in values.get("binlog_row_value_options", "").upper():
        problems.append(
            "binlog_row_value_options is PARTIAL_JSON, so that updates lack parts of JSON columns: "
            f"{_set('binlog_row_value_options', repr(''), mariadb)}{reconnect}"
        )
    engine = values.get("binlog_storage_engine", "")
    if engine:
        problems.append(
            f"binlog_storage_engine is {engine}, a format without files and positions, which Barnabas does not read: "
            "remove binlog_storage_engine from my.cnf, and restart the server"
        )
    return problems


def _has_seconds(values: Mapping[str, str]) -> bool:
    return float(values.get("binlog_expire_logs_seconds") or 0) > 0


def _expiry_seconds(values: Mapping[str, str]) -> int:
    """After how many seconds the server deletes a binlog; 0 if never."""
    if _has_seconds(values):
        return int(float(values["binlog_expire_logs_seconds"]))
    return int(float(values.get("expire_logs_days") or 0) * 86_400)


def _missing_privileges(grants: Iterable[str], databases: Iterable[str], mariadb: bool) -> list[str]:
    """Privileges that the user lacks. A grant to a role that SHOW GRANTS does not expand cannot be seen."""
    everywhere: set[str] = set()
    selectable: list[re.Pattern[str]] = []
    for line in grants:
        found = _GRANT.match(line.strip())
        if found is None:
            continue
        names = {name.strip().upper() for name in re.sub(r"\([^)]*\)", "", found[1]).split(",")}
        where = found[2].replace("`", "").strip()
        if where == "*.*":
            everywhere |= names
        if names & {"SELECT", "ALL PRIVILEGES", "ALL"}:
            selectable.append(_pattern(where.partition(".")[0]))
    if everywhere & {"ALL PRIVILEGES", "ALL"}:
        return []
    problems = []
    monitor = "BINLOG MONITOR" if mariadb else "REPLICATION CLIENT"
    for privileges, name in ((_REPLICATION_SLAVE, "REPLICATION SLAVE"), (_REPLICATION_CLIENT, monitor)):
        if not privileges & everywhere:
            problems.append(f"the user lacks {name}: GRANT {name} ON *.* TO CURRENT_USER; (run by an administrator)")
    problems += [
        f"the user cannot read the database {database}: GRANT SELECT ON `{database}`.* TO CURRENT_USER; "
        "(run by an administrator)"
        for database in databases
        if not any(pattern.fullmatch(database) for pattern in selectable)
    ]
    return [problem.replace("CURRENT_USER", "'the user'@'its host'") for problem in problems]


def _pattern(database: str) -> re.Pattern[str]:
    r"""A database of a grant: `%` and `_` are wildcards, `\_` is an underscore, `*` is every database."""
    if database == "*":
        return re.compile(".*", re.DOTALL)
    parts = re.split(r"(\\.|%|_)", database)
    wild = {"%": ".*", "_": "."}
    return re.compile("".join(wild.get(part) or re.escape(part.lstrip("\\")) for part in parts), re.DOTALL)


def session_statements(plan: ServerPlan, position: BinlogPosition, heartbeat_seconds: int = 10) -> tuple[str, ...]:
    """What a session must run before COM_BINLOG_DUMP, or COM_BINLOG_DUMP_GTID, from a position."""
    statements = [f"SET @master_heartbeat_period = {heartbeat_seconds * 1_000_000_000}"]
    if plan.mariadb:
        statements += [
            "SET @master_binlog_checksum = @@global.binlog_checksum",
            "SET @mariadb_slave_capability = 4",
        ]
        if position.gtids:
            statements += [
                f"SET @slave_connect_state = '{position.gtids}'",
                "SET @slave_gtid_strict_mode = 0",
                "SET @slave_gtid_ignore_duplicates = 0",
            ]
    else:
        statements += [
            "SET @master_binlog_checksum = @@global.binlog_checksum",
            "SET @source_binlog_checksum = @@global.binlog_checksum",
        ]
    return tuple(statements)


def check_available(plan: ServerPlan, position: BinlogPosition, binlogs: Iterable[str], gtid_purged: str = "") -> None:
    """Raise BinlogPurgedError if the server has deleted changes after `position`.

    `binlogs` are the files of SHOW BINARY LOGS, `gtid_purged` is MySQL's variable. A source that continues by GTIDs
    needs every transaction that it has not read; one that continues by file needs the file.
    """
    if plan.uses_gtids and position.gtids and not plan.mariadb:
        missing = GtidSet.parse(gtid_purged).subtract(GtidSet.parse(position.gtids))
        if missing:
            raise _purged(position, f"the transactions {missing} are in gtid_purged")
        return
    if plan.server_uuid and position.server_uuid and plan.server_uuid != position.server_uuid:
        if plan.mariadb and position.gtids:
            return
        raise HistoryLostError(
            f"the position {position.file}:{position.position} is of server {position.server_uuid}, this is server "
            f"{plan.server_uuid}, whose files are others: connect to the server of the position, or "
            f"{START_OVER}"
        )
    files = list(binlogs)
    if position.file not in files and not (plan.mariadb and position.gtids):
        span = f"{files[0]} to {files[-1]}" if files else "none"
        raise _purged(position, f"the server has the binlogs {span}")


def dump_error(code: int, message: str, position: BinlogPosition) -> MysqlSourceError:
    """The error for an error packet that ends a binlog dump. 1236 has many reasons, of which purging is one."""
    if code == _ER_SOURCE_FATAL_ERROR_READING_BINLOG and _PURGED.search(message):
        return _purged(position, f"the server answers {code}: {message}")
    if re.search(r"same server_(uu)?id", message, re.IGNORECASE):
        advice = "another replica or reader has the same server_id: give this source a server_id of its own"
    elif "max_allowed_packet" in message:
        advice = "an event is larger than max_allowed_packet: run SET GLOBAL max_allowed_packet = 1073741824"
    elif re.search(r"checksum", message, re.IGNORECASE):
        advice = "the session did not ask for checksums: run the session's statements before the dump"
    elif re.search(r"> file size|impossible position|bogus data", message, re.IGNORECASE):
        return HistoryLostError(
            f"the server ended the binlog dump with error {code}: {message}: the position {position.place} is not "
            "between two events of the file, perhaps because the server lost the end of its binlog in a crash "
            f"(sync_binlog=0). To go on, {START_OVER}"
        )
    else:
        advice = "correct the cause that the server names, and restart the query"
    return MysqlSourceError(f"the server ended the binlog dump with error {code}: {message}: {advice}")


def _purged(position: BinlogPosition, why: str) -> BinlogPurgedError:
    return BinlogPurgedError(
        f"changes after {position.file}:{position.position} (GTIDs {position.gtids or 'none'}) are no longer in the "
        f"server's binlogs: {why}. To go on, {START_OVER}. Keep binlogs longer than the query may pause "
        "(SET GLOBAL binlog_expire_logs_seconds = 604800)"
    )
