"""`barnabas pipelines` without Spark: init, list, describe, reset, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from barnabas.cli.spark.pipelines import app
from barnabas.spark.pipelines.state import PipelineProject, find_project

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(app, arguments)


def flow(name: str, target: str, target_type: str, **more: object) -> dict[str, object]:
    return {
        "flow": name,
        "type": "stream",
        "target": target,
        "target_type": target_type,
        "reads": ["orders"],
        "topics": ["orders"],
        "after": [],
        "state": "completed",
        "failures": 0,
        "restarts_max": None,
        "restarts": 0,
        "retry_at_ms": None,
        "rows": 12_345,
        "batches": 2,
        "batch_id": 1,
        "rows_per_second": 99.6,
        "lag": 7,
        "batch_ms": 210,
        "watermark": "2013-01-01T00:00:00.000Z",
        "state_rows": 3,
        "state_bytes": 2_048,
        "error": None,
        "waiting_for": [],
        **more,
    }


def ran(project: PipelineProject) -> None:
    """What a run leaves behind."""
    metrics = {"minOffsetsBehindLatest": "1", "avgOffsetsBehindLatest": "3.5", "maxOffsetsBehindLatest": "6"}
    sources = [{"description": "barnabas[orders]", "metrics": metrics}, {"description": "Rate", "metrics": {}}]
    flows = [flow("order_log", "order_log", "streaming table", sources=sources), flow("find", "large", "sink")]
    with project.locked():
        project.save_run(
            {"pipeline": "shop", "pid": 1, "mode": "once", "started_ms": 0, "updated_ms": 1, "flows": flows}
        )


def test_init_writes_a_project_that_is_found_by_directory_and_later_by_name(run: Run) -> None:
    created = run("init", "shop", "-b", "host:9092")
    assert (created.exit_code, "shop/spark-pipeline.yml" in created.stdout) == (0, True)
    assert 'SERVERS = "host:9092"' in Path("shop/transformations/orders.py").read_text()
    assert "exists already; choose another name" in run("init", "shop").stderr
    assert "never run" in run("describe", "shop").stderr
    ran(find_project("shop"))
    Path("elsewhere").mkdir()
    assert find_project("shop").spec_path == Path("shop/spark-pipeline.yml").absolute()


def test_describe_and_list(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("init", "shop")
    ran(find_project("shop"))
    monkeypatch.chdir(tmp_path / "shop" / "transformations")  # the spec is found in a directory above
    shown = run("describe")
    assert "shop: stopped (once, process 1" in shown.stderr
    assert [line.split() for line in shown.stdout.splitlines()][1][:9] == [
        *("order_log", "stream", "orders", "order_log", "completed"),
        *("12,345", "100", "7", "1"),
    ]
    assert "3 rows, 2.0 KiB" in shown.stdout
    assert shown.stdout.splitlines()[-1].split() == ["order_log", "barnabas[orders]", "1", "4", "6", "-", "-"]
    described = json.loads(run("describe", "--json").stdout)
    assert (described["status"], described["run"]["flows"][1]["flow"]) == ("stopped", "find")
    (row,) = json.loads(run("list", "--json").stdout)
    assert (row["pipeline"], row["status"], row["flows"], row["failed"], row["lag"]) == ("shop", "stopped", 2, 0, 14)
    with find_project("shop").locked():
        (row,) = json.loads(run("list", "--json").stdout)
        assert (row["status"], row["rows_per_second"]) == ("running", 199.2)
        assert "is running; stop it first: barnabas pipelines stop shop" in run("reset", "shop", "find").stderr


def test_what_is_unknown_is_shown_as_unknown_and_what_has_failed_as_failed(run: Run) -> None:
    run("init", "shop")
    never: dict[str, object] = {"rows": 0, "batches": 0, "batch_id": None, "lag": None, "rows_per_second": None}
    flows = [
        flow("order_log", "order_log", "streaming table"),
        flow("find", "large", "sink", **never, state="retrying", failures=3, restarts_max=10, error="ValueError: x"),
        flow("tell", "told", "sink", **never, state="failed", error="OptionError: y"),
        flow("count", "counts", "streaming table", **{**never, "topics": []}),
    ]
    with find_project("shop").locked():
        find_project("shop").save_run({"pid": 1, "mode": "once", "started_ms": 0, "updated_ms": 1, "flows": flows})
    shown = run("describe", "shop")
    assert "shop: failed (once" in shown.stderr
    assert "1 of 4 flows failed: tell" in shown.stderr
    cells = {line.split()[0]: line.split()[4:9] for line in shown.stdout.splitlines()[1:5]}
    assert cells == {
        "order_log": ["completed", "12,345", "100", "7", "1"],
        "find": ["retrying", "3/10", "0", "-", "unknown"],
        "tell": ["failed", "0", "-", "unknown", "-"],
        "count": ["completed", "0", "-", "-", "-"],  # it reads a table, and has no lag
    }
    (row,) = json.loads(run("list", "--json").stdout)
    assert (row["status"], row["failed"], row["lag"]) == ("failed", 1, None), "not the 7 of one of three flows"


def test_reset_asks_and_is_remembered_until_the_next_run(run: Run) -> None:
    run("init", "shop")
    ran(find_project("shop"))
    refused = run("reset", "shop", "fnd", "--yes")
    assert (refused.exit_code, "there are find, large, order_log" in refused.stderr) == (1, True)
    asked = run("reset", "shop", "order_log", "find")
    assert asked.exit_code == 2
    assert "the table order_log is emptied and the sink large gets rows again that it has already" in asked.stderr
    assert run("reset", "shop", "order_log", "--yes").exit_code == 0
    assert find_project("shop").resets() == ["order_log"]
    assert "order_log begins anew at the next start" in run("describe", "shop").stderr


def test_what_is_not_there(run: Run) -> None:
    assert "there is no spark-pipeline.yml in" in run("describe").stderr
    assert "known: none" in run("describe", "shop").stderr
    run("init", "shop")
    assert "shop is not running" in run("stop", "shop").stderr
    Path("shop/spark-pipeline.yaml").write_text("name: x")
    assert "has both spark-pipeline.yml and spark-pipeline.yaml; remove one" in run("describe", "shop").stderr
