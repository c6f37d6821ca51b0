"""Shell: runs a PostgreSQL, MariaDB or MySQL server as a process of its own, which a test can kill and restart.

    with PostgresServer() as server:
        connection = psycopg.connect(server.conninfo)

The servers are the ones of the operating system (on Debian: `postgresql` and `mariadb-server-core`; on Ubuntu, also
`mysql-server-core`). Each has a temporary directory and a free port of 127.0.0.1, needs no rights and no configuration
of the machine, and accepts every local client. All log changes in the way that change capture needs
(`wal_level=logical`; `binlog_format=ROW` with full metadata). They do not wait for the disk, so a commit survives the
death of the server but not that of the machine.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from barnabas.core.child_processes import start_child
from barnabas.core.errors import BarnabasError
from barnabas.testing.ports import free_port

START_SECONDS: Final = 120.0
"""A start takes about a second on a quiet machine; this is the limit on a busy one."""


class DatabaseServerError(BarnabasError):
    """A database server is not installed, or did not start. The message has the end of the server's log."""


class DatabaseServer:
    """What all servers share: a directory, a port, a process. `kill()` is kill -9; `start()` starts it again on the
    same data and port. `settings` are `name=value` strings for the server.
    """

    PROGRAM = ""
    PACKAGE = ""
    USERS: tuple[str, ...] = ()
    """If root runs the test, the server runs as the first of these users that exists, because servers refuse root."""
    READY = b""
    """A line of the log contains this text when the server accepts connections."""
    STILL_RUNS = b""
    """A line of the log contains this text if processes of a killed server still run, so that a start fails."""

    def __init__(self, settings: Sequence[str] = ()) -> None:
        self.settings = list(settings)
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._user = self._other_user() if os.geteuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="barnabas-db-"))
        self.data_dir = self.folder / "data"
        self.log_path = self.folder / "log.txt"
        self._own(self.folder)

    def __enter__(self) -> Self:
        try:
            self.create()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create(self) -> None:
        """Create the data directory. Raises DatabaseServerError if the server is not installed."""
        with self.log_path.open("ab") as log:
            done = subprocess.run(
                self._as_user(self.creation()), stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False
            )
        if done.returncode:
            raise DatabaseServerError(f"{self.PROGRAM} could not create its data directory:\n{self._end_of_log()}")

    def start(self, seconds: float = START_SECONDS) -> None:
        """Start the server, and return when it accepts connections."""
        deadline = time.monotonic() + seconds
        self.port = self.port or free_port()
        while True:
            began = self.log_path.stat().st_size
            with self.log_path.open("ab") as log:
                self.process = start_child(
                    self._as_user(self.command()),
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    cwd=self.folder,
                    start_new_session=True,
                )
            while self.alive and time.monotonic() < deadline:
                if self.READY in self._log_from(began) and self._accepts():
                    return
                time.sleep(0.05)
            again = not self.alive and self.STILL_RUNS and self.STILL_RUNS in self._log_from(began)
            if not again or time.monotonic() > deadline:
                self.kill()
                raise DatabaseServerError(f"{self.PROGRAM} did not start; the end of its log:\n{self._end_of_log()}")
            time.sleep(0.2)

    def creation(self) -> list[str]:
        """The command that creates the data directory."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """The command that runs the server in the foreground."""
        raise NotImplementedError

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """Kill the server with SIGKILL, and wait until it has ended."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """Stop the server cleanly; open connections are closed."""
        if self.process is not None and self.alive:
            self.process.send_signal(signal.SIGINT if self.PROGRAM == "postgres" else signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()

    def restart(self) -> None:
        """Stop the server cleanly and start it again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Kill the server and delete its directory."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @classmethod
    def find(cls, program: str) -> str:
        """The path of a program of the server. Raises DatabaseServerError with the package to install."""
        for folder in cls.folders():
            found = shutil.which(program, path=folder)
            if found is not None:
                return found
        raise DatabaseServerError(f"{program} is not installed; on Debian and Ubuntu: apt-get install {cls.PACKAGE}")

    @classmethod
    def folders(cls) -> list[str]:
        """Where the programs may be, the best folder first."""
        return [os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"]

    def _as_user(self, command: list[str]) -> list[str]:
        if self._user is None:
            return command
        # The death signal that `start_child` asks for is lost with the change of the user, so it is asked for again.
        return [
            "setpriv",
            f"--reuid={self._user}",
            f"--regid={self._group()}",
            "--clear-groups",
            "--pdeathsig=KILL",
            *command,
        ]

    def _own(self, path: Path) -> None:
        if self._user is not None:
            shutil.chown(path, self._user, self._group())

    def _group(self) -> int:
        assert self._user is not None
        return pwd.getpwnam(self._user).pw_gid

    def _other_user(self) -> str:
        for name in (*self.USERS, "nobody"):
            with contextlib.suppress(KeyError):
                return pwd.getpwnam(name).pw_name
        raise DatabaseServerError(f"{self.PROGRAM} cannot run as root, and there is no user {self.USERS[0]} or nobody")

    def _accepts(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
            return True
        return False

    def _log_from(self, position: int) -> bytes:
        with self.log_path.open("rb") as log:
            log.seek(position)
            return log.read()

    def _end_of_log(self) -> str:
        return self.log_path.read_text(errors="replace")[-4000:]


class PostgresServer(DatabaseServer):
    """A PostgreSQL server with the superuser `postgres` and the database `postgres`. No client needs a password."""

    PROGRAM = "postgres"
    PACKAGE = "postgresql"
    USERS = ("postgres",)
    READY = b"database system is ready to accept connections"
    STILL_RUNS = b"is still in use"

    @property
    def conninfo(self) -> str:
        """The connection string for libpq and psycopg."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"

    def creation(self) -> list[str]:
        options = [
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
        ]
        return [self.find("initdb"), "-D", str(self.data_dir), *options]

    def command(self) -> list[str]:
        settings = (
            "listen_addresses=127.0.0.1",
            f"port={self.port}",
            "unix_socket_directories=",
            "wal_level=logical",
            "max_replication_slots=16",
            "max_wal_senders=16",
            "fsync=off",
            *self.settings,
        )
        return [self.find("postgres"), "-D", str(self.data_dir), *(f"--{setting}" for setting in settings)]

    @classmethod
    def folders(cls) -> list[str]:
        def version(folder: str) -> float:
            with contextlib.suppress(ValueError):
                return float(Path(folder).parent.name)
            return 0.0

        return [*sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=version, reverse=True), *super().folders()]  # noqa: PTH207 - names, not paths


class MariaDbServer(DatabaseServer):
    """A MariaDB server with the user `barnabas`, whose password is `barnabas` and who may do everything, and with the
    empty database `shop`.
    """

    PROGRAM = "mariadbd"
    PACKAGE = "mariadb-server-core mariadb-client-core"
    USERS = ("mysql",)
    READY = b"ready for connections"
    STILL_RUNS = b"Can't lock aria control file"
    ADDED: tuple[str, ...] = ()
    """Settings that other servers of this kind do not have."""

    user = "barnabas"
    password = "barnabas"
    database = "shop"

    def creation(self) -> list[str]:
        options = ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        return [
            self.find("mariadb-install-db"),
            *options,
            f"--datadir={self.data_dir}",
            f"--tmpdir={self._temporary()}",
        ]

    def _temporary(self) -> Path:
        """A folder of its own for temporary tables: a server that starts removes those of all others in its folder."""
        folder = self.folder / "temporary"
        folder.mkdir(exist_ok=True)
        self._own(folder)
        return folder

    def command(self) -> list[str]:
        first = self.folder / "first.sql"
        first.write_text(
            f"CREATE USER IF NOT EXISTS '{self.user}'@'%' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{self.user}'@'%' WITH GRANT OPTION;\n"
            f"CREATE DATABASE IF NOT EXISTS {self.database};\n"
        )
        settings = (
            f"datadir={self.data_dir}",
            f"tmpdir={self._temporary()}",
            "bind-address=127.0.0.1",
            f"port={self.port}",
            f"socket={self.folder / 'socket'}",
            f"pid-file={self.folder / 'pid'}",
            f"init-file={first}",
            "skip-name-resolve",
            "server-id=1",
            "log-bin=binlog",
            "binlog-format=ROW",
            "binlog-row-metadata=FULL",
            "innodb-buffer-pool-size=64M",
            "innodb-flush-log-at-trx-commit=2",
            *self.ADDED,
            *self.settings,
        )
        return [self.find(self.PROGRAM), "--no-defaults", *(f"--{setting}" for setting in settings)]


class MySqlServer(MariaDbServer):
    """A MySQL server with the same user and database. MariaDB's packages have a `mysqld`, too, which is not used."""

    PROGRAM = "mysqld"
    PACKAGE = "mysql-server-core"
    STILL_RUNS = b"Unable to lock ./ibdata1"
    ADDED = ("gtid-mode=ON", "enforce-gtid-consistency=ON", "mysqlx=OFF", "secure-file-priv=")

    @classmethod
    def find(cls, program: str) -> str:
        found = super().find(program)
        shown = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
        if "MariaDB" in shown:
            raise DatabaseServerError(f"{found} is MariaDB's; on Ubuntu: apt-get install {cls.PACKAGE}")
        return found

    def creation(self) -> list[str]:
        return [
            self.find("mysqld"),
            "--no-defaults",
            "--initialize-insecure",
            f"--datadir={self.data_dir}",
            f"--tmpdir={self._temporary()}",
        ]
