"""`connect-plugin-path`: the worker's own plugins, and those that the manifests of jars name."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from barnabas.cli.kafka.connect.connect_plugin_path import main

CONNECTOR = "org.apache.kafka.connect.source.SourceConnector"
THEIRS = "com.example.QueueSourceConnector"
OURS = "io.debezium.connector.postgresql.PostgresConnector"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["connect-plugin-path", *arguments])
    main()


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "plugins" / "queue"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "queue.jar", "w") as jar:
        jar.writestr(f"META-INF/services/{CONNECTOR}", f"# manifests have comments\n{THEIRS}  # here, too\n{OURS}\n")
    with zipfile.ZipFile(folder / "library.jar", "w") as jar:
        jar.writestr("com/example/Library.class", b"")
    return folder.parent


def test_list_shows_which_plugins_of_jars_the_worker_has_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jars: Path
) -> None:
    (jars.parent / "worker.properties").write_text(f"plugin.path={jars}\n")
    run(monkeypatch, "list", "--worker-config", str(jars.parent / "worker.properties"))
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split("\t")[0] == "pluginName"
    found = {tuple(row.split("\t")[0::7]): row.split("\t") for row in rows if row.count("\t") == 7}
    location = str(jars / "queue")
    assert found[THEIRS, location][1:7] == [
        "QueueSourceConnector",
        "QueueSource",
        "undefined",
        "source",
        "false",
        "true",
    ]
    assert found[OURS, location][5] == "true"
    assert found[OURS, "barnabas"][4:6] == ["source", "true"]
    total = next(row for row in rows if row.startswith("Total plugins:"))
    assert int(total.split("\t")[1]) == len(found)


def test_manifests_are_not_written_and_the_reason_is_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jars: Path
) -> None:
    with pytest.raises(SystemExit) as left:
        run(monkeypatch, "sync-manifests", "--plugin-path", str(jars), "--dry-run")
    assert left.value.code == 1
    assert "need no manifests" in capsys.readouterr().err


def test_wrong_plugin_path_and_broken_jar_are_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jars: Path
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, "list", "--plugin-path", str(jars / "none"))
    assert "is not a directory" in capsys.readouterr().err
    (jars / "broken.jar").write_text("")
    with pytest.raises(SystemExit):
        run(monkeypatch, "list", "--plugin-path", str(jars))
    assert "cannot be read" in capsys.readouterr().err
