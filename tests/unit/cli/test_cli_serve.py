"""`barnabas serve`: its options, its place in the list of nouns, and modules that it must not import."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from barnabas.cli.app import build_app
from barnabas.cli.serve import serve
from barnabas.cli.serve.serve import SUMMARY, build_parser


def test_serve_options_have_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BARNABAS_DATA_DIR", raising=False)
    assert vars(build_parser().parse_args([])) == {
        "data_dir": None,
        "listener": None,
        "config": None,
        "env": False,
        "settings": [],
        "metrics": None,
        "registry": None,
        "console": None,
        "insecure": False,
        "processes": None,
        "add_scram": None,
        "cluster_id": None,
        "log_level": "info",
        "log_format": "text",
        "log_file": None,
        "log_file_mib": 100,
        "log_files": 10,
    }
    given = build_parser().parse_args(["-d", "data", "-l", "PLAINTEXT://:0", "-c", "a=1", "-c", "b=2", "--log-json"])
    assert (given.data_dir, given.listener, given.settings, given.log_format) == (
        "data",
        "PLAINTEXT://:0",
        ["a=1", "b=2"],
        "json",
    )


def test_data_directory_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_DATA_DIR", "/srv/barnabas")
    assert build_parser().parse_args([]).data_dir == "/srv/barnabas"


@pytest.mark.parametrize("wrong", [["--data"], ["--log-level", "loud"], ["surplus"]])
def test_wrong_usage_exits_with_code_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(wrong)
    assert ended.value.code == 2
    assert "usage: barnabas serve" in capsys.readouterr().err


def test_serve_is_listed_with_the_other_nouns() -> None:
    shown = CliRunner().invoke(build_app(), ["--help"])
    assert shown.exit_code == 0
    assert SUMMARY in shown.output


def test_a_start_imports_nothing_that_only_other_commands_need() -> None:
    """Each of these imports costs 20 to 150 ms, and a broker should start in a fraction of a second."""
    code = "import sys, barnabas.cli.serve.serve, barnabas.server.node.server, uvloop; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    imported = set(done.stdout.split())
    assert (
        imported
        & {
            "typer",
            "rich",
            "numpy",
            "numba",
            "pyarrow",
            "pydantic",
            "barnabas.client",
            "barnabas.protocol.transport.http.pages",
        }
        == set()
    )
    assert "importlib.metadata" not in imported
    assert {
        "barnabas.server.quorum.messages",
        "barnabas.server.node.setup.cluster_id",
        "barnabas.protocol.wire.messages.vote",
    } & imported == set()
    assert {
        "barnabas.server.storage.cleaner.cleaning",
        "barnabas.server.replication.cleaning.worker",
    } & imported == set()
    assert {"re2", "cramjam", "ctypes", "hashlib", "ipaddress", "pathlib", "pickle", "shutil"} & imported == set()
    assert {
        f"barnabas.server.coordination.group.{machine}" for machine in ("shard", "groups", "share_group")
    } & imported == set()


@pytest.mark.parametrize(
    ("listeners", "warned"),
    [
        ("PLAINTEXT://127.0.0.1:0", []),
        ("PLAINTEXT://:0", ["PLAINTEXT://:0"]),
        ("PLAINTEXT://:0,OTHER://10.0.0.1:0,NEAR://localhost:0", ["PLAINTEXT://:0", "OTHER://10.0.0.1:0"]),
    ],
)
def test_listeners_without_authentication_are_warned_about_in_one_line(
    listeners: str,
    warned: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(serve, "_run", lambda *_: None)
    names = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,NEAR:PLAINTEXT"
    try:
        serve.main(["-d", str(tmp_path), "-l", listeners, "-c", f"listener.security.protocol.map={names}"])
    finally:
        gc.enable()  # `main` disables it for the time of the start
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("WARNING: ")]
    assert len(lines) == bool(warned)
    assert all(address in lines[0] for address in warned)
    assert not any("localhost" in line or "127.0.0.1" in line for line in lines)
