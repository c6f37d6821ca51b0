"""The blocks of docs/CONNECT.md that are not Python are used as they stand there: properties, and shell commands."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.system.client.tls_proxy import Authority
from tests.system.pages import DOCS
from tests.unit.registry.memory_registry import MemoryRegistry

from barnabas.spark.connectors.arrow_fields import record_field
from barnabas.spark.connectors.connect.plans.planner import WorkerPlanner
from barnabas.spark.connectors.connect.plans.queries import findings_of, plan_query
from barnabas.spark.connectors.connect.server import ConnectServer
from barnabas.spark.connectors.connect.spark_runtime import SparkConnectorRuntime
from barnabas.spark.connectors.connect.worker_config import parse_worker_config
from barnabas.spark.connectors.connect_schemas import ConnectSchema, ConnectType, struct_schema
from barnabas.spark.connectors.converters import avro_converter
from barnabas.spark.connectors.converters.making import make_converter
from barnabas.testing.embedded import AsyncEmbeddedBroker

PAGE = (DOCS / "CONNECT.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
OTHERS = [(kind, text) for kind, text in BLOCKS if kind not in ("python", "text")]
"""Blocks of Python, and what they print, are run by the tests of their sections."""


def block(kind: str, start: str) -> str:
    (found,) = [text for one, text in OTHERS if one == kind and text.startswith(start)]
    return found


def properties(start: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in block("properties", start).splitlines())
    return {name: text for name, _, text in pairs}


USED = ("path=/lake", "value.converter=io.confluent", "bootstrap.servers", "curl -X POST", "listeners=https")
"""The starts of the blocks, in their order, each of which a test below uses."""


def test_every_block_is_used_by_a_test() -> None:
    starts = [next((start for start in USED if text.startswith(start)), text) for _, text in OTHERS]
    assert starts == list(USED)


def test_the_options_of_a_sink_of_records() -> None:
    config = {"name": "lake", "connector.class": "DeltaSink", "topics": "orders", **properties("path=/lake")}
    assert [finding.errors for finding in findings_of(config) if finding.errors] == []
    assert plan_query(config, {"bootstrap.servers": "b:1"}).write_options["transforms.drop.exclude"] == "password"


def test_the_options_of_avro_converter(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = MemoryRegistry()
    accesses: list[Any] = []

    def client(access: Any) -> Any:
        accesses.append(access)
        return registry

    monkeypatch.setattr(avro_converter, "registry_client", client)
    converter = make_converter("value.converter", properties("value.converter=io.confluent"), is_key=False)
    field = record_field("value", struct_schema("shop.Order", {"id": ConnectSchema(ConnectType.INT32)}))
    converter.encode_column(pa.array([{"id": 1}], field.type), field, pa.array(["orders"]))
    assert [one.subject for one in registry.registered] == ["orders-shop.Order"]
    assert (accesses[0].url, accesses[0].login.user_info) == ("http://localhost:8081", "name:password")


def serve(config: dict[str, str], use: Callable[[str], Any]) -> Any:
    """What `use` returns for the URL of a worker with these properties, whose connectors do not start."""

    def no_session() -> Any:
        raise RuntimeError("connectors do not start here")

    async def main() -> Any:
        async with AsyncEmbeddedBroker() as broker:
            parsed = parse_worker_config({**config, "bootstrap.servers": broker.bootstrap_servers})
            runtime = SparkConnectorRuntime(parsed, WorkerPlanner(parsed.client), open_session=no_session)
            server = ConnectServer(parsed, runtime)
            ready = asyncio.Event()
            running = asyncio.create_task(server.run(lambda _: ready.set()))
            waiting = asyncio.create_task(ready.wait())
            await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            found = await asyncio.to_thread(use, server.url) if not running.done() else None
            server.stop()
            await running
            return found

    return asyncio.run(main())


def worker(folder: Path) -> dict[str, str]:
    config = properties("bootstrap.servers")
    replication = {f"{name}.storage.replication.factor": "1" for name in ("config", "status")}
    return {**config, **replication, "storage.location": str(folder), "listeners": "http://127.0.0.1:0"}


def test_a_worker_takes_the_connectors_of_the_commands(tmp_path: Path) -> None:
    commands = block("sh", "curl -X POST")

    def use(url: str) -> list[Any]:
        script = commands.replace("localhost:8083", url).replace(
            "curl ", "curl --silent --show-error --fail-with-body "
        )
        done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        listed = subprocess.run(["curl", "-s", f"{url}/connectors"], capture_output=True, timeout=300, check=True)
        return sorted(json.loads(listed.stdout))

    assert serve(worker(tmp_path), use) == ["lines", "orders"]


def test_a_worker_has_tls_and_users(tmp_path: Path) -> None:
    authority = Authority("connect")
    identity = authority.sign("localhost")
    (tmp_path / "worker.pem").write_text(identity.certificate + identity.key)
    (tmp_path / "authority.pem").write_text(authority.pem)
    entry = re.search(r"`(KafkaConnect \{.*?\};)`", PAGE, re.DOTALL)
    assert entry is not None
    (tmp_path / "login.conf").write_text(entry[1].replace("/etc/connect", str(tmp_path)))
    (tmp_path / "users.properties").write_text("admin=s3cret\n")
    secure = {name: text.replace("/etc/connect", str(tmp_path)) for name, text in properties("listeners=https").items()}
    config = {**worker(tmp_path), **secure, "listeners": secure["listeners"].replace("//:8443", "//127.0.0.1:0")}

    def use(url: str) -> list[str]:
        place = f"{url.replace('127.0.0.1', 'localhost')}/connectors"
        command = ["curl", "-s", "--cacert", str(tmp_path / "authority.pem"), "-w", "%{http_code}"]
        users: list[list[str]] = [[], ["-u", "admin:s3cret"]]
        asked = [
            subprocess.run([*command, *user, place], capture_output=True, text=True, timeout=300) for user in users
        ]
        return [one.stdout[-3:] for one in asked]

    assert serve(config, use) == ["401", "200"]
