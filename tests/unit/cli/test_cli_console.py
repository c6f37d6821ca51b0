"""`barnabas console` and `serve --console --registry`, as processes; and the users file that `add-user` writes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from barnabas.cli.app import build_app
from barnabas.console.access.users import Role, parse_users
from barnabas.protocol.security.password_hash import check_password
from barnabas.testing import EmbeddedBroker


def url_of(process: subprocess.Popen[str], name: str) -> str:
    """The URL in the line that a service prints when it is ready."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(f"barnabas {name} ready: "):
            return line.split()[-1]
    raise AssertionError(f"the {name} ended before it was ready")


def get(url: str) -> object:
    with urlopen(url, timeout=30) as response:
        return json.load(response)


@contextmanager
def start(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end, if it has not ended."""
    command = [sys.executable, "-m", "barnabas", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_broker_runs_with_a_registry_and_a_console_until_a_signal(tmp_path: Path) -> None:
    loopback = "http://127.0.0.1:0"
    data = ["--data-dir", str(tmp_path / "data"), "--listener", "PLAINTEXT://127.0.0.1:0"]
    with start("serve", *data, "--registry", loopback, "--console", loopback) as process:
        url_of(process, "registry")
        url = url_of(process, "console")
        assert get(f"{url}/api/schemas")["rows"] == []  # type: ignore[index]
        assert get(f"{url}/api/overview")["brokers"] == 1  # type: ignore[index]
        process.terminate()
        assert process.wait(30) == 0


def test_a_console_runs_beside_a_cluster_until_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    pairs = tmp_path / "mm2.properties"
    pairs.write_text("clusters=A,B\nA.bootstrap.servers=127.0.0.1:1\nB.bootstrap.servers=127.0.0.1:1\n")
    pages = ("--pipelines", "--mirror", str(pairs))
    with EmbeddedBroker() as broker, start("console", "-b", broker.bootstrap_servers, "--port", "0", *pages) as process:
        url = url_of(process, "console")
        assert get(f"{url}/api/overview")["brokers"] == 1  # type: ignore[index]
        assert get(f"{url}/api/pipelines") == {"rows": []}
        assert get(f"{url}/api/mirrors")["pairs"] == []  # type: ignore[index]
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--host", "0.0.0.0"], "it has no login"),
        (["--mask", "x"], "is not a mask"),
        (["--users-file", "absent"], "file of users absent cannot be read"),
        (["--certificate", "c.pem"], "needs both --certificate and --key"),
    ],
)
def test_wrong_settings_are_explained(arguments: list[str], problem: str, tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "barnabas", "console", "--port", "0", *arguments],
        capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert shown.returncode == 2
    assert problem in shown.stderr


def test_users_are_added_and_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "users"

    def add(name: str, role: str, password: str) -> int:
        monkeypatch.setenv("BARNABAS_CONSOLE_PASSWORD", password)
        arguments = ["console", "add-user", name, "--role", role, "--users-file", str(path)]
        return CliRunner().invoke(build_app(("console",)), arguments).exit_code

    assert add("alice", "viewer", "first password") == 0
    assert add("bob", "admin", "his password") == 0
    assert add("alice", "editor", "second password") == 0
    assert add("carol", "viewer", "short") == 2
    users = parse_users(path.read_text(), "users")
    assert {name: user.role for name, user in users.items()} == {"bob": Role.ADMIN, "alice": Role.EDITOR}
    assert check_password("second password", users["alice"].password_hash)
    assert path.stat().st_mode & 0o777 == 0o600
