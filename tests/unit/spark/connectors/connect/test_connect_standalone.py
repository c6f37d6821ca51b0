"""The files of `barnabas connect standalone`, and the worker that runs their connectors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.spark.connectors.connect.cluster.ports import (
    ConfigDefinition,
    ConfigFinding,
    ConnectorJob,
    ConnectorReport,
    ConnectPlugin,
    StartedConnector,
    TaskReport,
)
from barnabas.spark.connectors.connect.cluster.values import ConnectorConfig, ConnectorKind, ConnectorState
from barnabas.spark.connectors.connect.connector_files import (
    ConnectorFile,
    ConnectorFileError,
    parse_connector_file,
    parse_standalone_config,
)
from barnabas.spark.connectors.connect.standalone import StandaloneWorker
from barnabas.spark.connectors.connect.worker_config import WorkerConfigError

CONFIG = {"name": "lines", "connector.class": "FileStreamSource", "tasks.max": "1", "enabled": "true"}


@pytest.mark.parametrize(
    "text",
    [
        "name=lines\nconnector.class=FileStreamSource\ntasks.max=1\nenabled=true\n",
        '{"name": "lines", "connector.class": "FileStreamSource", "tasks.max": 1, "enabled": true, "absent": null}',
        ' {"name": "lines", "config": {"connector.class": "FileStreamSource", "tasks.max": "1", "enabled": true}}',
    ],
    ids=["properties", "flat", "named"],
)
def test_a_connector_is_read_from_properties_and_both_forms_of_json(text: str) -> None:
    assert parse_connector_file(text, "f") == ConnectorFile("lines", CONFIG)


def test_a_file_may_give_the_state_that_its_connector_begins_with() -> None:
    text = '{"name": "n", "config": {"connector.class": "c"}, "initial_state": "paused"}'
    assert parse_connector_file(text, "f").initial_state is ConnectorState.PAUSED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("connector.class=c", "f has no name"),
        ('{"name": "n"}', "f has no connector.class"),
        ('{"name": ', "f is not JSON"),
        (
            '{"name": "n", "connector.class": "c", "topics": ["a"]}',
            "f: topics must be a string, a number or a boolean, got list: write a string",
        ),
        ('{"name": "n", "config": {"connector.class": "c"}, "state": 1}', "f has state beside name, config"),
        ('{"name": "n", "config": {"connector.class": "c"}, "initial_state": "FAILED"}', "one of RUNNING, PAUSED"),
    ],
)
def test_a_wrong_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConnectorFileError, match=message):
        parse_connector_file(text, "f")


def test_checkpoints_are_beside_the_offsets_file_or_where_storage_location_says() -> None:
    file = {"bootstrap.servers": "b:1", "offset.storage.file.filename": "/tmp/connect.offsets"}
    assert parse_standalone_config(file).storage_location == "file:///tmp/connect.offsets.barnabas"
    assert parse_standalone_config({**file, "storage.location": "s3://b/c"}).storage_location == "s3://b/c"
    assert parse_standalone_config(file).client == {"bootstrap.servers": "b:1"}
    with pytest.raises(WorkerConfigError, match=r"needs offset\.storage\.file\.filename or"):
        parse_standalone_config({"bootstrap.servers": "b:1"})


class RuntimeOfJobs:
    """A `ConnectorRuntime` that remembers what it was asked to run. Each report takes the next states of `reports`."""

    def __init__(self, reports: Sequence[ConnectorState] = ()) -> None:
        self.jobs: dict[str, ConnectorJob] = {}
        self.closed = False
        self._reports = list(reports)

    def plugins(self) -> Sequence[ConnectPlugin]:
        return ()

    def kind(self, config: ConnectorConfig) -> ConnectorKind:
        return ConnectorKind.SOURCE

    def definitions(self, plugin: str) -> Sequence[ConfigDefinition]:
        return ()

    async def validate(self, config: ConnectorConfig) -> Sequence[ConfigFinding]:
        if config["connector.class"] == "none":
            raise LookupError("no such connector")
        return [ConfigFinding("file", errors=("file must be given",))] if config["connector.class"] == "bad" else []

    async def start(self, job: ConnectorJob) -> StartedConnector:
        self.jobs[job.name] = job
        return StartedConnector(({},))

    async def stop(self, name: str) -> None:
        del self.jobs[name]

    async def report(self, name: str) -> ConnectorReport | None:
        if name not in self.jobs:
            return None
        state = self._reports.pop(0) if self._reports else ConnectorState.RUNNING
        return ConnectorReport((TaskReport(state, "why"),))

    async def close(self) -> None:
        self.closed = True


def connector(name: str, class_name: str = "good", state: ConnectorState = ConnectorState.RUNNING) -> ConnectorFile:
    return ConnectorFile(name, {"name": name, "connector.class": class_name}, state)


def test_all_connectors_run_but_those_that_begin_paused(tmp_path: Path) -> None:
    async def play() -> None:
        runtime = RuntimeOfJobs([ConnectorState.FAILED])
        files = [connector("one"), connector("two", state=ConnectorState.PAUSED)]
        worker = StandaloneWorker(tmp_path.as_uri(), runtime, files)
        await worker.run(StandaloneWorker.stop)
        assert list(runtime.jobs) == ["one"]
        assert runtime.jobs["one"].places.checkpoint.startswith(f"{tmp_path.as_uri()}/checkpoints/one/")
        assert worker.states == {"one": ConnectorState.RUNNING, "two": ConnectorState.PAUSED}
        assert runtime.closed

    asyncio.run(play())


def test_the_state_of_a_connector_is_that_of_its_worst_task(tmp_path: Path) -> None:
    async def play() -> None:
        runtime = RuntimeOfJobs([ConnectorState.FAILED])
        worker = StandaloneWorker(tmp_path.as_uri(), runtime, [connector("one")])
        running = asyncio.ensure_future(worker.run(lambda _: None))
        while worker.states.get("one") is not ConnectorState.FAILED:
            await asyncio.sleep(0)
        worker.stop()
        await running

    asyncio.run(play())


def test_nothing_is_started_if_one_connector_has_an_error_and_all_errors_are_named(tmp_path: Path) -> None:
    async def play() -> None:
        runtime = RuntimeOfJobs()
        files = [connector("one"), connector("one"), connector("two", "bad"), connector("three", "none")]
        worker = StandaloneWorker(tmp_path.as_uri(), runtime, files)
        with pytest.raises(ConnectorFileError) as raised:
            await worker.run(lambda _: None)
        assert str(raised.value) == (
            "one is the name of two connectors; two: file must be given; three: no such connector"
        )
        assert (runtime.jobs, runtime.closed) == ({}, True)

    asyncio.run(play())
