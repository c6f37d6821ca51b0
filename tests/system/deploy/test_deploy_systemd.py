"""The units of deploy/systemd as systemd reads them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from barnabas.cli.app import build_app
from barnabas.cli.serve.serve import build_parser

pytestmark = pytest.mark.system

UNITS = sorted((Path(__file__).parents[3] / "deploy" / "systemd").glob("*.service"))
PROGRAM = "/opt/barnabas/bin/barnabas"


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def command_of(unit: Path) -> list[str]:
    (line,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    return shlex.split(line.partition("=")[2])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    installed = tmp_path / unit.name
    installed.write_text(unit.read_text().replace(PROGRAM, sys.executable))  # the program must exist
    done = analyze("verify", "--man=no", str(installed))
    own = [line for line in done.stderr.splitlines() if unit.name in line]  # the units of this machine are not meant
    assert own == []
    assert done.returncode == 0 or done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_calls_the_service_well_protected(unit: Path) -> None:
    done = analyze("security", "--offline=true", "--threshold=30", "--no-pager", str(unit))
    assert done.returncode == 0, done.stdout  # 0 is the best, 100 the worst


def test_the_commands_exist() -> None:
    for unit in UNITS:
        program, noun, *rest = command_of(unit)
        assert program == PROGRAM
        if noun == "serve":
            assert build_parser().parse_args(rest).metrics
        else:
            shown = CliRunner().invoke(build_app(), [noun, rest[0], "--help"], env={"COLUMNS": "200"})
            assert shown.exit_code == 0
            assert all(option in shown.output for option in rest if option.startswith("--"))
