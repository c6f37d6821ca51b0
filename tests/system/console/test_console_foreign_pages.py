"""A page of another web site, in a real Chromium, tries the doors of Connect, the registry, the console and a node.

The browser has a session of the console's administrator. The page comes from another site, from another port of this
host (whose pages get the console's cookies), or from a name that its site lets point to the server itself.
"""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any, Final

import pytest
from playwright.sync_api import Page, sync_playwright

from barnabas.client import Admin, Consumer
from barnabas.console.access.users import Role
from barnabas.console.server import ConsoleServer
from barnabas.console.settings import ConsoleSettings
from barnabas.core.telemetry import Metrics
from barnabas.registry.server import RegistryServer
from barnabas.server.node.health import Health
from barnabas.server.node.metrics_pages import MetricsPages
from barnabas.spark.connectors.connect.plans.planner import WorkerPlanner
from barnabas.spark.connectors.connect.server import ConnectServer
from barnabas.spark.connectors.connect.spark_runtime import SparkConnectorRuntime
from barnabas.spark.connectors.connect.worker_config import parse_worker_config
from barnabas.testing import EmbeddedBroker
from tests.system.console.shop import in_thread
from tests.unit.console.pages import write_users

pytestmark = pytest.mark.system

REFUSED: Final = {403, 405, 415}
SUBJECTS: Final = "/subjects/orders-value/versions"
SCHEMA: Final = json.dumps({"schema": '"string"'})
LOCAL: Final = "http://127.0.0.1:0"
TRY: Final = """async ([tries, forms]) => {
  const named = async (how, work) => { try { return [how, await work()]; } catch (error) { return [how, "refused"]; } };
  const body = (method, text) => method === "GET" || method === "HEAD" ? {} : {body: text};
  const found = [];
  for (const [url, method, text, type] of tries) {
    for (const [mode, kind] of [["cors", "application/json"], ["cors", "text/plain"], ["no-cors", "text/plain"],
                                ["no-cors", "application/x-www-form-urlencoded"]]) {
      const with_type = method === "GET" ? {} : {headers: {"content-type": type || kind}};
      found.push(await named(`${mode} ${method} ${url}`, async () => {
        const answer = await fetch(url, {method, mode, credentials: "include", ...with_type, ...body(method, text)});
        return answer.type === "opaque" ? "refused" : `${answer.status} ${await answer.text()}`;
      }));
    }
    if (method === "POST" && forms) {
      navigator.sendBeacon(url, text);
      for (const enctype of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
        const frame = document.createElement("iframe");
        frame.name = `f${Math.random()}`;
        const form = Object.assign(document.createElement("form"),
                                   {action: url, method: "post", enctype, target: frame.name});
        for (const [name, value] of type ? new URLSearchParams(text) : [[text.replace(/}$/, ', "x": "'), '"}']]) {
          form.append(Object.assign(document.createElement("input"), {type: "hidden", name, value}));
        }
        document.body.append(frame, form);
        const loaded = new Promise(done => { frame.onload = done; setTimeout(done, 2000); });
        form.submit();
        await loaded;
      }
    }
    if (method === "GET") {
      for (const tag of ["script", "img", "link"]) {
        const element = Object.assign(document.createElement(tag), {src: url, href: url, rel: "stylesheet"});
        const ended = new Promise(done => { element.onload = () => done("read"); element.onerror = () => done(""); });
        document.body.append(element);
        found.push([`${tag} ${url}`, (await ended) === "read" ? "read" : "refused"]);
      }
    }
  }
  return found.filter(([_, answer]) => answer !== "refused");
}"""
"""Tries each request in all ways that a page has. Returns what was answered."""


class NodePages:
    """The pages of a node that is well."""

    def __init__(self) -> None:
        self._pages = MetricsPages(f"{LOCAL}/metrics", Metrics(), lambda: Health(True, ()))
        self._serving: asyncio.Task[None] | None = None
        self.url = self._pages.url.removesuffix("/metrics")

    async def run(self, on_ready: Any) -> None:
        self._serving = asyncio.create_task(self._pages.run())
        on_ready(self)
        await asyncio.wait((self._serving,))

    def stop(self) -> None:
        assert self._serving is not None
        self._serving.cancel()


@contextmanager
def evil_site() -> Iterator[int]:
    """The port of a site with an empty page."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><body>You have won.</body>")

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="evil site")
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def call(url: str, method: str = "GET", body: str | None = None) -> Any:
    """What a program gets that sends JSON."""
    data = None if body is None else body.encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read())


class Victim:
    """The servers, and what a page may not change in them."""

    def __init__(self, servers: str, running: dict[str, Any], file: Path) -> None:
        self.servers = servers
        self.connect, self.registry, self.console, self.node = (
            running[name].url for name in ("ConnectServer", "RegistryServer", "ConsoleServer", "NodePages")
        )
        source = {"connector.class": "FileStreamSource", "file": str(file), "topic": "stolen"}
        self.connector = json.dumps({"name": "thief", "config": source})
        call(self.registry + SUBJECTS, "POST", SCHEMA)
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topic("orders", 1, 1)
        with Consumer(bootstrap_servers=servers, group_id="shop") as consumer:
            consumer.subscribe(["orders"])
            consumer.poll(0)
            consumer.commit()

    def tries(self) -> list[tuple[str, str, str, str | None]]:
        """(URL, method, body, its only type)"""
        form = "application/x-www-form-urlencoded"
        changes: list[tuple[str, str, str, str | None]] = [
            (f"{self.connect}/connectors", "POST", self.connector, None),
            (f"{self.connect}/connectors/thief/config", "PUT", self.connector, None),
            (f"{self.connect}/admin/loggers/root", "PUT", '{"level": "TRACE"}', None),
            (f"{self.registry}/subjects/evil-value/versions", "POST", SCHEMA, None),
            (f"{self.registry}/subjects/orders-value", "DELETE", "", None),
            (f"{self.registry}/config", "PUT", '{"compatibility": "NONE"}', None),
            (f"{self.registry}/mode", "PUT", '{"mode": "READONLY"}', None),
            (f"{self.console}/topics/create", "POST", "topic=evil&partitions=1", form),
            (f"{self.console}/api/topics/create", "POST", '{"topic": "evil", "partitions": 1}', None),
            (f"{self.console}/topics/orders/delete", "POST", "confirm=orders", form),
            (f"{self.console}/groups/shop/reset", "POST", "to=earliest&topics=orders", form),
            (f"{self.console}/logout", "POST", "", form),
            (f"{self.node}/metrics", "POST", "", None),
        ]
        paths = [f"{self.connect}/connectors", f"{self.registry}/subjects", f"{self.console}/api/session"]
        paths += [f"{self.console}/topics", f"{self.node}/metrics", f"{self.node}/readyz"]
        return [*changes, *((path, "GET", "", None) for path in paths)]

    def state(self) -> Any:
        with Admin(bootstrap_servers=self.servers) as admin:
            topics = sorted(topic.name for topic in admin.list_topics())
            offsets = str(admin.list_group_offsets("shop"))
        registry = [call(self.registry + path) for path in ("/subjects", "/config", "/mode", SUBJECTS)]
        return topics, offsets, registry, call(f"{self.connect}/connectors"), call(f"{self.connect}/admin/loggers")


@contextmanager
def victim(folder: Path) -> Iterator[Victim]:
    with EmbeddedBroker() as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers}
        file = folder / "secret"
        file.write_text("a secret\n")
        storage = {f"{name}.storage.topic": f"connect-{name}" for name in ("config", "status")}
        factors = {f"{name}.storage.replication.factor": "1" for name in ("config", "status")}
        worker = {**client, **storage, **factors, "group.id": "g", "storage.location": str(folder), "listeners": LOCAL}

        def connect(_: Any) -> ConnectServer:
            config = parse_worker_config({**worker, "file.directories": str(folder)})
            planner = WorkerPlanner(config.client, config.converters, config.file_directories)
            return ConnectServer(config, SparkConnectorRuntime(config, planner, open_session=lambda: None))

        users = write_users(folder / "users", ada=Role.ADMIN)
        with in_thread(
            lambda _: RegistryServer(client, listener=LOCAL),
            lambda _: ConsoleServer(ConsoleSettings(client, listener=LOCAL, users_file=users)),
            connect,
            lambda _: NodePages(),
        ) as running:
            yield Victim(broker.bootstrap_servers, running, file)


def log_in(page: Page, url: str) -> None:
    page.goto(f"{url}/login")
    page.locator("[name=user]").fill("ada")
    page.locator("[name=password]").fill("adaadaada")
    page.locator("[name=password]").press("Enter")
    page.wait_for_url(f"{url}/")


def test_pages_of_other_sites_reach_nothing(tmp_path: Path) -> None:
    path = which("chromium")
    assert path is not None, "Chromium is missing: run tests/system/console/install.sh"
    arguments = ["--no-sandbox", "--host-resolver-rules=MAP *.example 127.0.0.1"]
    with victim(tmp_path) as doors, evil_site() as port, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        page = browser.new_context().new_page()
        log_in(page, doors.console)
        before, statuses = doors.state(), set[tuple[int, str]]()
        page.on("response", lambda response: statuses.add((response.status, response.url)))
        for origin in (f"http://evil.example:{port}", f"http://127.0.0.1:{port}"):
            page.goto(origin)
            statuses.clear()
            assert page.evaluate(TRY, [doors.tries(), True]) == [], origin
            assert {status for status, _ in statuses} <= REFUSED, statuses
            assert statuses, "the servers were reached"
        for server in (doors.connect, doors.registry, doors.node):  # the name points to the server itself now
            rebound = server.replace("127.0.0.1", "evil.example")
            page.goto(f"{rebound}/", wait_until="commit")
            own = [(url.replace(server, rebound), *rest) for url, *rest in doors.tries() if url.startswith(server)]
            answers = page.evaluate(TRY, [own, False])
            assert answers
            assert {answer.split(" ")[0] for how, answer in answers} <= {str(status) for status in REFUSED}, answers
        assert doors.state() == before
        page.goto(doors.console)
        assert page.url == f"{doors.console}/", "the session goes on"
        browser.close()
        # A program may do what no page may.
        assert call(f"{doors.connect}/connectors", "POST", doors.connector)["name"] == "thief"
