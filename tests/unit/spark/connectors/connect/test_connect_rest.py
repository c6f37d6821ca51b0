"""Connect's REST API, row by row, on a worker whose topics are in memory."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.spark.connectors.connect.memory_connect import (
    MemoryConfigLog,
    MemoryOffsets,
    MemoryRuntime,
    MemoryStatusLog,
    MemoryTopics,
)

from barnabas.protocol.transport.http.messages import HttpRequest, HttpResponse
from barnabas.spark.connectors.connect.cluster.ports import ConfigDefinition, ConfigFinding
from barnabas.spark.connectors.connect.cluster.worker import ConnectStore, ConnectWorker
from barnabas.spark.connectors.connect.plans.planner import WorkerPlanner
from barnabas.spark.connectors.connect.rest.app import ConnectApp
from barnabas.spark.connectors.connect.rest.calls import ConnectServices
from barnabas.spark.connectors.connect.rest.loggers import WorkerLoggers
from barnabas.spark.connectors.connect.rest.plugins import finding_document

CONFIG = {"connector.class": "Memory", "path": "p", "topics": "orders", "tasks.max": "2"}
FULL = {**CONFIG, "name": "n"}


class Api:
    """A worker that is assigned every connector, and its API."""

    def __init__(self, topics: MemoryTopics) -> None:
        self.topics = topics
        self.store = ConnectStore(MemoryConfigLog(topics), MemoryStatusLog(topics))
        self.runtime = MemoryRuntime()
        self.offsets = MemoryOffsets()
        self.worker = ConnectWorker(self.store, self.runtime, self.offsets, "w:8083", tracks_topics=True)
        self.services: ConnectServices | None = ConnectServices(
            self.store, self.runtime, self.offsets, WorkerLoggers(), "the-cluster"
        )
        self.app = ConnectApp(lambda: self.services)
        self.store.on_change = lambda: self.worker.set_assignment(frozenset(self.store.state.connectors), 1)

    async def response(self, method: str, target: str, body: Any = None) -> HttpResponse:
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.app(HttpRequest(method, target, {}, raw))

    async def call(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        response = await self.response(method, target, body)
        return response.status, json.loads(response.body) if response.body else None

    async def until_status(self, name: str, connector: str, *tasks: str) -> dict[str, Any]:
        """Wait until the API returns these states."""
        async with asyncio.timeout(60):
            while True:
                status, document = await self.call("GET", f"/connectors/{name}/status")
                if status == 200:
                    states = [document["connector"]["state"], *(task["state"] for task in document["tasks"])]
                    if states == [connector, *tasks]:
                        return dict(document)
                await asyncio.sleep(0)


@asynccontextmanager
async def running() -> AsyncIterator[Api]:
    api = Api(MemoryTopics())
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(api.worker.run())
        await asyncio.sleep(0)
        yield api
        run.cancel()


def play(scene: Callable[[Api], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running() as api:
            await scene(api)

    asyncio.run(main())


def test_the_worker_and_its_health() -> None:
    async def scene(api: Api) -> None:
        status, document = await api.call("GET", "/")
        assert (status, document["kafka_cluster_id"], set(document)) == (
            200,
            "the-cluster",
            {"version", "commit", "kafka_cluster_id"},
        )
        status, document = await api.call("GET", "/health")
        assert (status, document["status"]) == (200, "healthy")
        services, api.services = api.services, None
        status, document = await api.call("GET", "/health")
        assert (status, document["status"]) == (503, "starting")
        assert (await api.call("GET", "/connectors"))[0] == 503
        api.services = services

        async def broken(apply: object) -> None:
            raise TimeoutError

        api.store._status_log.catch_up = broken  # type: ignore[method-assign]
        status, document = await api.call("GET", "/health")
        assert (status, document["status"]) == (500, "unhealthy")
        assert await api.call("GET", "/connectors") == (
            500,
            {"error_code": 500, "message": "The topics of this Connect cluster did not answer in time."},
        )

    play(scene)


def test_a_connector_is_created_read_and_deleted() -> None:
    async def scene(api: Api) -> None:
        response = await api.response("POST", "/connectors", {"name": "n", "config": {**CONFIG, "tasks.max": 2}})
        assert (response.status, response.headers) == (201, {"Location": "/connectors/n"})
        assert json.loads(response.body) == {"name": "n", "config": FULL, "tasks": [], "type": "sink"}
        document = await api.until_status("n", "RUNNING", "RUNNING", "RUNNING")
        assert document == {
            "name": "n",
            "connector": {"state": "RUNNING", "worker_id": "w:8083", "version": "1.0"},
            "tasks": [{"id": n, "state": "RUNNING", "worker_id": "w:8083", "version": "1.0"} for n in (0, 1)],
            "type": "sink",
        }
        assert await api.call("GET", "/connectors") == (200, ["n"])
        info = {"name": "n", "config": FULL, "type": "sink"}
        info["tasks"] = [{"connector": "n", "task": 0}, {"connector": "n", "task": 1}]
        assert await api.call("GET", "/connectors/n") == (200, info)
        assert await api.call("GET", "/connectors?expand=status&expand=info") == (
            200,
            {"n": {"status": document, "info": info}},
        )
        assert await api.call("GET", "/connectors?expand=info") == (200, {"n": {"info": info}})
        assert await api.call("GET", "/connectors/n/config") == (200, FULL)
        assert await api.call("GET", "/connectors/n/tasks/1/status") == (200, document["tasks"][1])
        status, tasks = await api.call("GET", "/connectors/n/tasks")
        assert (status, [task["id"] for task in tasks]) == (200, info["tasks"])
        assert tasks[1]["config"] == {**FULL, "task": "1"}
        assert await api.call("DELETE", "/connectors/n") == (204, None)
        assert await api.call("GET", "/connectors") == (200, [])
        assert await api.call("GET", "/connectors/n/status") == (
            404,
            {"error_code": 404, "message": "Connector n not found"},
        )
        async with asyncio.timeout(60):
            while api.runtime.running:
                await asyncio.sleep(0)

    play(scene)


def test_configurations_are_put_and_patched() -> None:
    async def scene(api: Api) -> None:
        status, document = await api.call("PUT", "/connectors/n/config", CONFIG)
        assert (status, document["config"]) == (201, FULL)
        await api.until_status("n", "RUNNING", "RUNNING", "RUNNING")
        status, document = await api.call("PUT", "/connectors/n/config", {**CONFIG, "tasks.max": "1"})
        assert (status, document["config"]["tasks.max"]) == (200, "1")
        await api.until_status("n", "RUNNING", "RUNNING")
        status, document = await api.call("PATCH", "/connectors/n/config", {"path": "q", "topics": None, "x": True})
        assert (status, document["config"]) == (
            200,
            {"name": "n", "connector.class": "Memory", "path": "q", "tasks.max": "1", "x": "true"},
        )
        async with asyncio.timeout(60):
            while "n" not in api.runtime.running or api.runtime.running["n"].config["path"] != "q":
                await asyncio.sleep(0)

    play(scene)


def test_a_put_that_was_validated_against_an_older_configuration_is_a_conflict() -> None:
    async def scene(api: Api) -> None:
        await api.call("PUT", "/connectors/n/config", CONFIG)
        validate = api.runtime.validate

        async def meanwhile(config: Any) -> Any:
            api.runtime.validate = validate  # type: ignore[method-assign]
            await api.call("PATCH", "/connectors/n/config", {"path": "other"})
            return await validate(config)

        api.runtime.validate = meanwhile  # type: ignore[method-assign,assignment]
        status, document = await api.call("PATCH", "/connectors/n/config", {"path": "mine"})
        assert (status, document["error_code"]) == (409, 409)
        assert (await api.call("GET", "/connectors/n/config"))[1]["path"] == "other"

    play(scene)


def test_pause_resume_and_stop() -> None:
    async def scene(api: Api) -> None:
        await api.call("PUT", "/connectors/n/config", CONFIG)
        await api.until_status("n", "RUNNING", "RUNNING", "RUNNING")
        assert await api.call("PUT", "/connectors/n/pause") == (202, None)
        await api.until_status("n", "PAUSED", "PAUSED", "PAUSED")
        assert api.runtime.running == {}
        assert await api.call("PUT", "/connectors/n/resume") == (202, None)
        await api.until_status("n", "RUNNING", "RUNNING", "RUNNING")
        assert await api.call("PUT", "/connectors/n/stop") == (204, None)
        await api.until_status("n", "STOPPED")
        async with asyncio.timeout(60):
            while (await api.call("GET", "/connectors/n/tasks"))[1]:
                await asyncio.sleep(0)
        assert await api.call("PUT", "/connectors/n/resume") == (202, None)
        await api.until_status("n", "RUNNING", "RUNNING", "RUNNING")
        assert (await api.call("PUT", "/connectors/missing/pause"))[0] == 404

    play(scene)


@pytest.mark.parametrize(("initial", "state"), [("STOPPED", "STOPPED"), ("paused", "PAUSED"), ("RUNNING", "RUNNING")])
def test_the_initial_state(initial: str, state: str) -> None:
    async def scene(api: Api) -> None:
        body = {"name": "n", "config": {**CONFIG, "tasks.max": "1"}, "initial_state": initial}
        assert (await api.call("POST", "/connectors", body))[0] == 201
        await api.until_status("n", state, *(["RUNNING"] if state == "RUNNING" else []))
        assert bool(api.runtime.running) is (state == "RUNNING")

    play(scene)


def test_restarts() -> None:
    async def scene(api: Api) -> None:
        await api.call("PUT", "/connectors/n/config", CONFIG)
        await api.until_status("n", "RUNNING", "RUNNING", "RUNNING")
        api.runtime.failed["n", 1] = "boom"
        api.worker.wake()
        document = await api.until_status("n", "RUNNING", "RUNNING", "FAILED")
        assert document["tasks"][1]["trace"] == "boom"
        api.runtime.failed.clear()
        status, document = await api.call("POST", "/connectors/n/restart?includeTasks=true&onlyFailed=true")
        assert (status, document["connector"]["state"]) == (202, "RESTARTING")
        await api.until_status("n", "RUNNING", "RUNNING", "RUNNING")
        starts = api.runtime.events.count("start n")
        assert (await api.call("POST", "/connectors/n/restart?includeTasks=true&onlyFailed=true"))[0] == 202
        assert await api.call("POST", "/connectors/n/restart") == (204, None)
        async with asyncio.timeout(60):
            while api.runtime.events.count("start n") == starts:
                await asyncio.sleep(0)
        await api.until_status("n", "RUNNING", "RUNNING", "RUNNING")
        assert await api.call("POST", "/connectors/n/tasks/1/restart") == (204, None)
        assert (await api.call("POST", "/connectors/n/tasks/2/restart"))[0] == 404
        assert (await api.call("POST", "/connectors/m/restart"))[0] == 404

    play(scene)


def test_a_connector_that_cannot_start_is_failed_with_the_reason() -> None:
    async def scene(api: Api) -> None:
        await api.call("PUT", "/connectors/n/config", {**CONFIG, "path": "bad"})
        document = await api.until_status("n", "FAILED")
        assert document["connector"]["trace"] == "OSError: the path bad does not exist"
        assert (await api.call("PUT", "/connectors/n/config", CONFIG))[0] == 200
        await api.until_status("n", "RUNNING", "RUNNING", "RUNNING")

    play(scene)


def test_offsets_change_only_while_the_connector_is_stopped() -> None:
    async def scene(api: Api) -> None:
        await api.call("PUT", "/connectors/n/config", CONFIG)
        await api.until_status("n", "RUNNING", "RUNNING", "RUNNING")
        partition = {"kafka_topic": "orders", "kafka_partition": 0}
        offsets = {"offsets": [{"partition": partition, "offset": {"kafka_offset": 7}}]}
        assert await api.call("GET", "/connectors/n/offsets") == (200, {"offsets": []})
        for method, body in (("PATCH", offsets), ("DELETE", None)):
            status, document = await api.call(method, "/connectors/n/offsets", body)
            assert status == 400 and "/connectors/n/stop" in document["message"]
        await api.call("PUT", "/connectors/n/stop")
        await api.until_status("n", "STOPPED")
        altered = {"message": "The offsets for this connector have been altered successfully"}
        assert await api.call("PATCH", "/connectors/n/offsets", offsets) == (200, altered)
        assert await api.call("GET", "/connectors/n/offsets") == (200, offsets)
        for body in (
            {},
            {"offsets": []},
            {"offsets": [{"partition": 1}]},
            {"offsets": [{"partition": {}, "offset": 3}]},
        ):
            assert (await api.call("PATCH", "/connectors/n/offsets", body))[0] == 400
        reset = {"message": "The offsets for this connector have been reset successfully"}
        assert await api.call("DELETE", "/connectors/n/offsets") == (200, reset)
        assert await api.call("GET", "/connectors/n/offsets") == (200, {"offsets": []})

    play(scene)


def test_offsets_do_not_change_before_the_worker_has_stopped_the_connector() -> None:
    async def scene(api: Api) -> None:
        await api.call("PUT", "/connectors/n/config", CONFIG)
        await api.until_status("n", "RUNNING", "RUNNING", "RUNNING")
        held = asyncio.Event()
        stop = api.runtime.stop

        async def slow(name: str) -> None:
            await held.wait()
            await stop(name)

        api.runtime.stop = slow  # type: ignore[method-assign]
        await api.call("PUT", "/connectors/n/stop")
        assert (await api.call("DELETE", "/connectors/n/offsets"))[0] == 409
        held.set()
        await api.until_status("n", "STOPPED")
        assert (await api.call("DELETE", "/connectors/n/offsets"))[0] == 200

    play(scene)


def test_topics_in_use() -> None:
    async def scene(api: Api) -> None:
        await api.call("PUT", "/connectors/n/config", CONFIG)
        await api.until_status("n", "RUNNING", "RUNNING", "RUNNING")
        async with asyncio.timeout(60):
            while (await api.call("GET", "/connectors/n/topics"))[1] != {"n": {"topics": ["orders"]}}:
                api.worker.wake()
                await asyncio.sleep(0)
        assert await api.call("PUT", "/connectors/n/topics/reset") == (202, None)
        assert await api.call("GET", "/connectors/n/topics") == (200, {"n": {"topics": []}})
        assert (await api.call("GET", "/connectors/m/topics"))[0] == 404
        services = api.services
        assert services is not None
        for tracking, reset, get, put in ((True, False, 200, 403), (False, True, 403, 403)):
            api.services = ConnectServices(
                services.store, services.runtime, services.offsets, services.loggers, "c", tracking, reset
            )
            assert (await api.call("GET", "/connectors/n/topics"))[0] == get
            assert (await api.call("PUT", "/connectors/n/topics/reset"))[0] == put

    play(scene)


def test_plugins_and_validation() -> None:
    async def scene(api: Api) -> None:
        memory = {"class": "Memory", "type": "sink", "version": "1.0"}
        converter = {"class": "JsonConverter", "type": "converter", "version": "1.0"}
        assert await api.call("GET", "/connector-plugins") == (200, [memory])
        assert await api.call("GET", "/connector-plugins?connectorsOnly=false") == (200, [memory, converter])
        status, definitions = await api.call("GET", "/connector-plugins/Memory/config")
        assert (status, [one["name"] for one in definitions]) == (200, ["path"])
        assert (await api.call("GET", "/connector-plugins/Nothing/config"))[0] == 404
        status, document = await api.call("PUT", "/connector-plugins/Memory/config/validate", {"tasks.max": "1"})
        assert (status, document["name"], document["error_count"], document["groups"]) == (200, "Memory", 1, ["Place"])
        (config,) = document["configs"]
        assert config["definition"]["required"] is True
        assert config["value"] == {
            "name": "path",
            "value": None,
            "recommended_values": [],
            "errors": ["path is missing; it must be given."],
            "visible": True,
        }
        other = {"connector.class": "Other"}
        assert (await api.call("PUT", "/connector-plugins/Memory/config/validate", other))[0] == 400
        assert (await api.call("PUT", "/connector-plugins/Nothing/config/validate", {}))[0] == 400

    play(scene)


def test_the_validation_hides_passwords() -> None:
    shown = {}
    for name, kind, value in (
        ("connection.password", "PASSWORD", "s3cr3t"),
        ("http.password", "PASSWORD", "${file:/s:p}"),
        ("ssl.password", "PASSWORD", ""),
        ("connection.user", "STRING", "u"),
        ("consumer.override.sasl.jaas.config", None, "x password=s3cr3t;"),
        ("consumer.override.client.id", None, "c"),
    ):
        finding = ConfigFinding(name, None if kind is None else ConfigDefinition(name, kind), value)
        shown[name] = finding_document(finding)["value"]["value"]
    assert shown == {
        "connection.password": "[hidden]",
        "http.password": "${file:/s:p}",
        "ssl.password": "",
        "connection.user": "u",
        "consumer.override.sasl.jaas.config": "[hidden]",
        "consumer.override.client.id": "c",
    }
    types = {one.name: one.type for one in WorkerPlanner({}).definitions("HttpSink")}
    assert (types["http.password"], types["http.headers.authorization"]) == ("PASSWORD", "PASSWORD")
    assert (types["http.authorization.type"], types["http.username"]) == ("STRING", "STRING")


def test_loggers_of_this_worker_and_of_all_workers() -> None:
    logger = logging.getLogger("barnabas.connect.test")
    logger.setLevel(logging.WARNING)

    async def scene(api: Api) -> None:
        status, document = await api.call("GET", "/admin/loggers")
        assert status == 200
        assert document["barnabas.connect.test"] == {"level": "WARN", "last_modified": None}
        assert await api.call("PUT", "/admin/loggers/barnabas.connect.test", {"level": "debug"}) == (
            200,
            ["barnabas.connect.test"],
        )
        assert logger.level == logging.DEBUG
        status, document = await api.call("GET", "/admin/loggers/barnabas.connect.test")
        assert document["level"] == "DEBUG" and document["last_modified"] > 0
        target = "/admin/loggers/barnabas.connect.test?scope=cluster"
        assert await api.call("PUT", target, {"level": "ERROR"}) == (204, None)
        assert api.services is not None
        api.services.loggers.follow(api.store.state.log_levels)
        assert logger.level == logging.ERROR
        assert (await api.call("PUT", "/admin/loggers/barnabas.connect.test", {"level": "LOUD"}))[0] == 404
        assert (await api.call("PUT", "/admin/loggers/barnabas.connect.test", {}))[0] == 400
        assert (await api.call("GET", "/admin/loggers/no.such"))[0] == 404

    try:
        play(scene)
    finally:
        logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "words"),
    [
        ("GET", "/nothing", None, 404, "404"),
        ("DELETE", "/connectors", None, 405, "405"),
        ("GET", "/connectors/n", None, 404, "Connector n not found"),
        ("DELETE", "/connectors/n", None, 404, "Connector n not found"),
        ("PATCH", "/connectors/n/config", {}, 404, "Connector n not found"),
        ("GET", "/connectors/n/tasks/x/status", None, 404, "not found"),
        ("POST", "/connectors", b"{", 400, "JSON object"),
        ("POST", "/connectors", {"name": "n"}, 400, "'config'"),
        ("POST", "/connectors", {"config": CONFIG}, 400, "'name'"),
        ("POST", "/connectors", {"name": "n", "config": {**CONFIG, "name": "m"}}, 400, "doesn't match"),
        ("POST", "/connectors", {"name": "n", "config": {"path": "p"}}, 400, "connector type"),
        ("POST", "/connectors", {"name": "n", "config": {"connector.class": "No"}}, 400, "There is no plugin No."),
        ("POST", "/connectors", {"name": "n", "config": {"connector.class": "Memory"}}, 400, "1 error(s)"),
        ("POST", "/connectors", {"name": "n", "config": CONFIG, "initial_state": "UP"}, 400, "initial_state"),
        ("PUT", "/connectors/n/config", {"a": ["b"]}, 400, "a must be a text"),
    ],
)
def test_rejected_requests(method: str, target: str, body: Any, status: int, words: str) -> None:
    async def scene(api: Api) -> None:
        found, document = await api.call(method, target, body)
        assert (found, document["error_code"]) == (status, status)
        assert words in document["message"]

    play(scene)


def test_a_second_connector_of_the_same_name_is_a_conflict_for_every_worker() -> None:
    async def scene(api: Api) -> None:
        other = Api(api.topics)
        body = {"name": "n", "config": CONFIG}
        assert (await api.call("POST", "/connectors", body))[0] == 201
        await api.until_status("n", "RUNNING", "RUNNING", "RUNNING")
        assert await other.call("POST", "/connectors", body) == (
            409,
            {"error_code": 409, "message": "Connector n already exists"},
        )
        assert await other.call("PUT", "/connectors/n/pause") == (202, None)
        await api.until_status("n", "PAUSED", "PAUSED", "PAUSED")

    play(scene)


def test_names_with_other_characters_are_percent_encoded() -> None:
    async def scene(api: Api) -> None:
        response = await api.response("POST", "/connectors", {"name": "a b/ö", "config": CONFIG})
        assert response.headers == {"Location": "/connectors/a%20b%2F%C3%B6"}
        assert (await api.call("GET", "/connectors/a%20b%2F%C3%B6/config"))[0] == 200

    play(scene)
