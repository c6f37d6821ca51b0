"""The Spark home whose Python processes import a PySpark that is compiled already."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from barnabas.spark import environment, home
from barnabas.spark.home import spark_home

PACKAGE = Path(pyspark.__file__).parent


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, on a machine without a Spark home and YARN."""
    for name in ("SPARK_HOME", "HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "barnabas"


def created() -> Path:
    found = spark_home()
    assert found is not None
    return found


def test_python_imports_the_installed_modules_from_the_home() -> None:
    """As Spark does, with the archives at the front of the path."""
    archives = sorted(str(path) for path in (created() / "python" / "lib").iterdir())
    assert [Path(path).suffix for path in archives] == [".zip", ".zip"]
    program = "import py4j, pyspark, pyspark.worker; print(py4j.__file__, pyspark.__file__, pyspark.worker.__cached__)"
    environment_of_worker = {**os.environ, "PYTHONPATH": os.pathsep.join(archives)}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment_of_worker, capture_output=True, text=True, check=True
    )
    py4j, module, compiled = answer.stdout.split()
    assert (py4j.startswith(archives[0]), module.startswith(archives[1])) == (True, True)
    assert Path(module).resolve() == Path(pyspark.__file__).resolve()
    assert Path(compiled).is_file()


def test_the_home_has_the_programs_and_jars_of_the_package() -> None:
    made = created()
    assert (made / "bin" / "spark-submit").samefile(PACKAGE / "bin" / "spark-submit")
    assert (made / "jars").samefile(PACKAGE / "jars")


def test_a_home_is_created_once() -> None:
    made = created()
    before = (made / "jars").lstat()
    assert created() == made
    assert (made / "jars").lstat() == before


def test_a_home_with_a_wrong_link_is_replaced(cache: Path) -> None:
    made = created()
    (made / "jars").unlink()
    (made / "jars").symlink_to("/nowhere")
    assert created() == made
    assert (made / "jars").samefile(PACKAGE / "jars")
    assert list(cache.iterdir()) == [made]
    assert not (made / "replaced").exists()


def test_processes_that_create_it_at_once_do_not_replace_it(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """The home of the faster one is never away, since its Java may be starting from there."""
    made, complete = created(), home._is_complete
    before = made.stat()
    answers = iter([False])  # the slower one has looked before the home was there
    monkeypatch.setattr(home, "_is_complete", lambda *given: next(answers, True) and complete(*given))
    assert created() == made
    assert made.stat().st_ino == before.st_ino
    assert list(cache.iterdir()) == [made]


@pytest.mark.parametrize("name", ["HADOOP_CONF_DIR", "YARN_CONF_DIR"])
def test_yarn_gets_the_archives_themselves(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "/etc/hadoop")
    assert spark_home() is None


def test_a_user_without_a_home_directory_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert spark_home() is None


def test_without_a_cache_spark_finds_its_home_itself(cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the directory would be")
    assert spark_home() is None


def test_the_environment_keeps_a_spark_home_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "ensure_java", lambda: Path("/java"))
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, os.environ.get(name, "given"))
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    environment.prepare_environment()
    assert os.environ["SPARK_HOME"] == "/opt/spark"
    monkeypatch.delenv("SPARK_HOME")
    environment.prepare_environment()
    assert os.environ["SPARK_HOME"] == str(created())
