"""The judgement of a server's settings, and of the errors that end a dump."""

from __future__ import annotations

import pytest

from barnabas.spark.connectors.mysql.errors import BinlogPurgedError, HistoryLostError, PositionError, ServerSetupError
from barnabas.spark.connectors.mysql.positions import BinlogPosition
from barnabas.spark.connectors.mysql.server import (
    ServerPlan,
    check_available,
    dump_error,
    judge,
    session_statements,
)
from barnabas.spark.connectors.mysql.unlogged import BinlogScope, cascade_warnings, writes_cascades

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
MYSQL = {
    "version": "8.4.2",
    "server_uuid": UUID,
    "server_id": "1",
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_row_value_options": "",
    "binlog_checksum": "CRC32",
    "binlog_expire_logs_seconds": "2592000",
    "gtid_mode": "ON",
}
MARIADB = {
    "version": "10.11.19-MariaDB-0+deb12u1-log",
    "server_id": "1",
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_checksum": "NONE",
    "binlog_expire_logs_seconds": "0",
    "expire_logs_days": "0.000000",
}
GRANTS = [
    "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `r`@`%`",
    "GRANT SELECT (`a`, `b`), SELECT ON `shop\\_%`.* TO `r`@`%`",
]

EVERYTHING = BinlogScope()
ADMIN = ["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION"]


def problems(
    variables: dict[str, str],
    grants: list[str] = GRANTS,
    databases: tuple[str, ...] = (),
    scope: BinlogScope = EVERYTHING,
) -> str:
    with pytest.raises(ServerSetupError) as caught:
        judge(variables, grants, databases, scope=scope)
    return str(caught.value)


def test_a_server_that_is_set_up_gives_a_plan() -> None:
    assert judge(MYSQL, GRANTS, ["shop_1"]) == ServerPlan(False, (8, 4, 2), UUID, True, True)
    monitor = ["GRANT SELECT, BINLOG MONITOR, REPLICATION SLAVE ON *.* TO `r`@`%`"]
    assert judge(MARIADB, monitor, ["x"]) == ServerPlan(True, (10, 11, 19), "server_id 1", True, False)
    assert judge(MARIADB, ["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION"], ["x"]).mariadb


def test_a_server_without_gtids_is_captured_with_a_warning() -> None:
    plan = judge({**MYSQL, "gtid_mode": "OFF"}, GRANTS)
    assert not plan.uses_gtids
    assert "a failover needs a new snapshot" in plan.warnings[0]


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("log_bin", "OFF", "log_bin=mysql-bin"),
        ("binlog_format", "MIXED", "SET PERSIST binlog_format = 'ROW'"),
        ("binlog_row_image", "MINIMAL", "SET PERSIST binlog_row_image = 'FULL'"),
        ("binlog_row_metadata", "MINIMAL", "SET PERSIST binlog_row_metadata = 'FULL'"),
        ("binlog_row_value_options", "PARTIAL_JSON", "SET PERSIST binlog_row_value_options = ''"),
        ("binlog_expire_logs_seconds", "3600", "SET PERSIST binlog_expire_logs_seconds = 604800"),
        ("server_id", "0", "SET PERSIST server_id = 1"),
        ("version", "5.7.44", "needs MySQL 8.0.1"),
    ],
)
def test_a_wrong_setting_is_named_with_the_statement_to_run(variable: str, value: str, remedy: str) -> None:
    assert remedy in problems({**MYSQL, variable: value})


def test_mariadb_is_set_up_with_set_global_and_the_configuration_file() -> None:
    text = problems({"version": "10.5.1-MariaDB"})
    assert "SET GLOBAL binlog_row_metadata = 'FULL'; and write binlog_row_metadata=FULL below [mariadb]" in text
    assert text.count("\n- ") == 3, "log_bin, binlog_format, binlog_row_metadata"
    assert "binlog_storage_engine" in problems({**MARIADB, "binlog_storage_engine": "innodb"})
    assert "needs MariaDB 10.5.0" in problems({"version": "10.4.2-MariaDB"})


def test_missing_privileges_are_named_with_their_grants() -> None:
    text = problems(
        MYSQL, ["GRANT USAGE ON *.* TO `r`@`%`", "GRANT SELECT ON `shop\\_1`.* TO `r`@`%`"], ("shop_1", "shopx1")
    )
    assert "GRANT REPLICATION SLAVE ON *.*" in text
    assert "GRANT REPLICATION CLIENT ON *.*" in text
    assert "GRANT SELECT ON `shopx1`.*" in text
    assert "`shop_1`" not in text


def test_a_replica_that_does_not_log_what_it_replicates_is_refused() -> None:
    replica = BinlogScope(is_replica=True)
    assert "log_replica_updates=ON below [mysqld]" in problems({**MYSQL, "log_replica_updates": "OFF"}, scope=replica)
    assert "log_slave_updates=OFF" in problems({**MARIADB, "log_slave_updates": "OFF"}, ADMIN, scope=replica)
    judge({**MYSQL, "log_replica_updates": "OFF"}, GRANTS)
    judge({**MYSQL, "log_replica_updates": "ON"}, GRANTS, scope=replica)


def test_a_server_that_may_be_a_replica_is_captured_with_a_warning() -> None:
    unknown = BinlogScope(is_replica=None)
    variables = {**MARIADB, "log_slave_updates": "OFF", "gtid_slave_pos": "0-1-5"}
    [warning] = judge(variables, ADMIN, scope=unknown).warnings
    assert "GRANT REPLICA MONITOR ON *.*" in warning
    assert not judge({**variables, "gtid_slave_pos": ""}, ADMIN, scope=unknown).warnings, "it has replicated nothing"
    assert not judge({**variables, "log_slave_updates": "ON"}, ADMIN, scope=unknown).warnings


@pytest.mark.parametrize(
    ("scope", "remedy"),
    [
        (BinlogScope(do_databases=("other",)), "add binlog_do_db=shop_1 to my.cnf"),
        (BinlogScope(ignored_databases=("x", "shop_1")), "remove binlog_ignore_db=shop_1 from my.cnf"),
    ],
)
def test_a_filter_that_keeps_a_captured_database_out_of_the_binlog_is_refused(scope: BinlogScope, remedy: str) -> None:
    assert remedy in problems(MYSQL, databases=("shop_1",), scope=scope)
    judge(MYSQL, ["GRANT ALL PRIVILEGES ON *.* TO `r`@`%`"], ["other"], scope=scope)


def test_filters_of_both_kinds_are_judged_as_the_server_does() -> None:
    judge(MYSQL, GRANTS, ["shop_1"], scope=BinlogScope(do_databases=("shop_1",), ignored_databases=("shop_1",)))


def test_a_foreign_key_that_changes_its_table_without_the_binlog_is_warned_of() -> None:
    definition = """CREATE TABLE `child` (
  `p` int(11) DEFAULT NULL COMMENT 'CONSTRAINT `x` FOREIGN KEY (`p`) REFERENCES `q` (`id`) ON DELETE CASCADE',
  CONSTRAINT `f``1` FOREIGN KEY (`p`) REFERENCES `parent` (`id`) ON DELETE CASCADE ON UPDATE SET NULL,
  CONSTRAINT `f2` FOREIGN KEY (`p`, `q`) REFERENCES `o`.`parent` (`id`, `b`) ON DELETE NO ACTION,
  CONSTRAINT `f3` FOREIGN KEY (`p`) REFERENCES `parent` (`id`)
) ENGINE=InnoDB"""
    [warning] = cascade_warnings("shop", "child", definition)
    assert "the foreign key f`1 of shop.child has ON DELETE CASCADE ON UPDATE SET NULL" in warning


def test_foreign_keys_of_mysql_9_6_are_in_the_binlog_unless_innodb_carries_them_out() -> None:
    assert writes_cascades({"innodb_native_foreign_keys": "OFF"})
    assert not writes_cascades({"innodb_native_foreign_keys": "ON"})
    assert not writes_cascades({})


def test_a_session_asks_for_checksums_and_mariadb_for_its_gtids() -> None:
    position = BinlogPosition("bin.000001", 4, "0-1-5")
    plan = judge(MARIADB, ["GRANT ALL PRIVILEGES ON *.* TO `r`@`%`"])
    statements = session_statements(plan, position)
    assert "SET @mariadb_slave_capability = 4" in statements
    assert "SET @slave_connect_state = '0-1-5'" in statements
    assert "SET @source_binlog_checksum = @@global.binlog_checksum" in session_statements(
        judge(MYSQL, GRANTS), position
    )


def test_purged_changes_are_noticed_before_reading() -> None:
    plan = judge(MYSQL, GRANTS)
    position = BinlogPosition("bin.000002", 4, f"{UUID}:1-10", UUID)
    check_available(plan, position, [], f"{UUID}:1-10")
    with pytest.raises(BinlogPurgedError, match=f"{UUID}:11-20"):
        check_available(plan, position, [], f"{UUID}:1-20")
    by_file = judge({**MYSQL, "gtid_mode": "OFF"}, GRANTS)
    check_available(by_file, position, ["bin.000002", "bin.000003"])
    with pytest.raises(BinlogPurgedError, match=r"bin\.000003 to bin\.000003"):
        check_available(by_file, position, ["bin.000003"])
    with pytest.raises(PositionError, match="whose files are others"):
        check_available(by_file, BinlogPosition("bin.000003", 4, "", "other"), ["bin.000003"])


@pytest.mark.parametrize(
    ("message", "purged", "advice"),
    [
        ("Could not find first log file name in binary log index file", True, "new snapshot"),
        ("Cannot replicate because the source purged required binary logs.", True, "new snapshot"),
        ("Could not find GTID state requested by slave in any binlog files.", True, "new snapshot"),
        (
            "A slave with the same server_uuid/server_id as this slave has connected to the master",
            False,
            "server_id of",
        ),
        ("log event entry exceeded max_allowed_packet", False, "max_allowed_packet = 1073741824"),
        ("Client requested master to start replication from position > file size", False, "sync_binlog=0"),
        (
            "Slave can not handle replication events with the checksum that master is configured to log",
            False,
            "checksums",
        ),
    ],
)
def test_the_many_reasons_of_error_1236_are_told_apart(message: str, purged: bool, advice: str) -> None:
    error = dump_error(1236, message, BinlogPosition("bin.000001", 4))
    assert isinstance(error, BinlogPurgedError) == purged
    assert isinstance(error, HistoryLostError) == ("file size" in message)
    assert advice in str(error)
