"""A connector that came over the REST API uses files below the configured directories only."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.spark.connectors.connect.plans.file_directories import refused_file
from barnabas.spark.connectors.connect.plans.planner import WorkerPlanner
from barnabas.spark.errors import OptionError

SOURCE = {"name": "lines", "connector.class": "FileStreamSource", "topic": "t"}


def test_files_below_the_directories_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "out").symlink_to("/etc")
    allowed = [str(tmp_path / "in")]
    for text in (f"{tmp_path}/in/a.txt", f"file:{tmp_path}/in/a", f"file://{tmp_path}/in/a%20b", "s3://bucket/key"):
        assert refused_file({"file": text}, allowed) is None, text
    for text in ("/etc/passwd", f"{tmp_path}/in/../b", f"{tmp_path}/in/out/passwd", f"{tmp_path}/inner", "file:/etc/x",
                 "relative", f"file://{tmp_path}/in/%2e%2e/b"):  # fmt: skip
        assert refused_file({"File": text}, allowed) is not None, text
        assert refused_file({"path": text}, []) is not None, text


def test_a_worker_refuses_other_files_when_it_validates_and_when_it_plans() -> None:
    planner = WorkerPlanner({"bootstrap.servers": "b:1"}, {}, ["/data"])
    config = {**SOURCE, "file": "/etc/passwd"}
    (finding,) = [found for found in planner.findings(config) if found.errors]
    assert finding.name == "file"
    assert "file.directories" in finding.errors[0]
    with pytest.raises(OptionError, match="not below the directories"):
        planner.plan(config)
    assert not any(found.errors for found in planner.findings({**SOURCE, "file": "/data/a"}))
    assert not any(found.errors for found in WorkerPlanner({"bootstrap.servers": "b:1"}).findings(config))
