"""The wheel that `make wheel` builds: what is in it, and that uv and pipx install it as a tool."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.system

ROOT: Final = Path(__file__).parents[3]
WHEEL_BYTES_MAX: Final = 4_000_000
STEP_S: Final = 300


def run(*words: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=STEP_S, env=environment, check=False)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--disable-pip-version-check",
        "-q",
        "--no-deps",
        "-w",
        str(folder),
        str(ROOT),
    )
    (built,) = folder.glob("barnabas-*-py3-none-any.whl")
    return built


def test_wheel_has_what_is_needed_and_nothing_else(wheel: Path) -> None:
    assert wheel.stat().st_size < WHEEL_BYTES_MAX
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "barnabas/py.typed" in names
    assert {Path(name).suffix for name in names if ".dist-info/" not in name} == {
        ".py", ".typed", ".html", ".css", ".js", ".svg",
    }  # fmt: skip
    inside = {Path(name).parts[0] for name in names if ".dist-info/" not in name}
    assert inside == {path.name for path in (ROOT / "src").iterdir() if path.name.isidentifier()}


@pytest.mark.parametrize("tool", ["uv", pytest.param("pipx", marks=pytest.mark.slow)])
def test_tools_install_the_wheel_as_a_command(wheel: Path, tmp_path: Path, tool: str) -> None:
    """README names these tools. They come from the registry into an environment of their own."""
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    own = tmp_path / "venv" / "bin"
    run(str(own / "pip"), "install", "--disable-pip-version-check", "-q", tool)
    environment = dict(os.environ) | {
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "PIPX_HOME": str(tmp_path / "tools"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
    }
    environment.pop("PYTHONPATH", None)
    words = [str(own / tool), *(["tool"] if tool == "uv" else []), "install", "--python", sys.executable, str(wheel)]
    run(*words, environment=environment)
    assert run(str(tmp_path / "bin" / "barnabas"), "--version", environment=environment).startswith("barnabas ")
    assert (tmp_path / "bin" / "kafka-topics").exists()
