"""The commands and settings of docs/SECURITY.md, run on clusters of three nodes while clients write and read."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from barnabas import Admin
from barnabas.cli.app import build_app
from barnabas.core.child_processes import start_child
from barnabas.core.errors import KafkaError
from barnabas.core.properties import parse_properties
from barnabas.protocol.transport.tls_files import CHECK_EVERY_S
from barnabas.testing.ports import free_ports
from barnabas.testing.process import BrokerProcess
from barnabas.testing.process_cluster import ConfiguredCluster
from tests.progress import STANDSTILL_S, wait_until
from tests.system.cli.conftest import module_of
from tests.system.pages import DOCS, section_of
from tests.system.security.load import Load

pytestmark = pytest.mark.system

PAGE: Final = (DOCS / "SECURITY.md").read_text(encoding="utf-8")
NODES: Final = (1, 2, 3)
ADMIN: Final = ("--command-config", "cluster/client.properties")


def commands(heading: str) -> list[list[str]]:
    """The words of each command in the `sh` blocks under a heading."""
    blocks = re.findall(r"```sh\n(.*?)```", section_of(PAGE, heading), re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines]


def run(words: list[str], *more: str) -> str:
    """Run a command of the page in this process, in the current directory."""
    program, noun, *rest = words
    if program.startswith("kafka-"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", [*words, *more])
            import_module(module_of(program)).main()
        return ""
    done = CliRunner().invoke(build_app((noun,)), [noun, *rest, *more])
    assert done.exit_code == 0, f"{words}: {done.output}"
    return done.output


def client_settings(name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    """The settings of librdkafka for a user of the cluster in the folder `cluster`."""
    given = parse_properties(Path("cluster/librdkafka.properties").read_text())
    return {**given, "sasl.username": name, "sasl.password": password, "sasl.mechanism": mechanism}


def wait_in_sync(settings: Mapping[str, object]) -> None:
    """Returns when every partition of the topic has three replicas in sync."""

    def in_sync() -> list[int]:
        with Admin(settings) as admin:
            view = admin.describe_topics(["orders"])["orders"]
            return [] if isinstance(view, KafkaError) else [len(partition.isr) for partition in view.partitions]

    wait_until(lambda: set(in_sync()) == {3}, "all replicas are in sync", progress=in_sync)


def presented(address: str, authority: str) -> str:
    """The certificate that a listener presents to a client that trusts `authority` (PEM). Raises ssl.SSLError."""
    context = ssl.create_default_context(cadata=authority)
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), STANDSTILL_S) as sock,
        context.wrap_socket(sock, server_hostname=host) as connected,
    ):
        der = connected.getpeercert(binary_form=True)
    assert der is not None
    return ssl.DER_cert_to_PEM_cert(der)


@contextmanager
def running() -> Iterator[ConfiguredCluster]:
    """The cluster of the folder `cluster`, without `barnabas cluster up`, so that nodes can be restarted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BARNABAS_ADD_SCRAM", Path("cluster/first-users").read_text())
        with ConfiguredCluster(Path("cluster").absolute()) as cluster:
            yield cluster


def test_everything_is_rotated_while_clients_write_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("alice.txt").write_text("old-secret\n")
    Path("new.txt").write_text("new-secret\n")
    init, up, *first, elsewhere, _ = commands("## A secure cluster")
    assert up == ["barnabas", "cluster", "up", "--data-dir", "cluster"]
    run(init, "--port", "0", "-c", "group.initial.rebalance.delay.ms=0")
    run([word.replace("/srv", str(tmp_path / "srv")) for word in elsewhere])
    with running() as cluster:
        for words in first:
            run(words)
        with Load("orders", client_settings("alice", "old-secret")) as load:
            _rotate_certificates(cluster, load)
            _rotate_password(load)
            load.finish()


def _rotate_certificates(cluster: ConfiguredCluster, load: Load) -> None:
    admin = parse_properties(Path("cluster/client.properties").read_text())
    address = cluster.bootstrap_servers.split(",")[0]
    store, trust = Path("cluster/nodes/node-1.pem"), Path("cluster/ca.pem")
    before = trust.read_text()
    assert presented(address, before) in store.read_text()
    (renew,) = commands("### Certificates of nodes")
    run(renew)
    time.sleep(CHECK_EVERY_S)  # the nodes look at their files this often
    assert presented(address, before) in store.read_text()
    load.wait_for_more()

    add, renew, drop = commands("### The authority")
    run(add)
    time.sleep(CHECK_EVERY_S)  # the nodes look at their files this often
    load.move(client_settings("alice", "old-secret"))  # librdkafka reads ca.pem when it starts
    run(renew)
    time.sleep(CHECK_EVERY_S)  # the nodes look at their files this often
    _restart(cluster, 2)  # every node opens new connections to node 2, and node 2 to every node
    wait_in_sync(admin)
    assert "Barnabas cluster cluster 2" in run(drop)
    time.sleep(CHECK_EVERY_S)  # the nodes look at their files this often
    _restart(cluster, 3)
    wait_in_sync(admin)
    assert presented(address, trust.read_text()) in store.read_text()
    with pytest.raises(ssl.SSLCertVerificationError):
        presented(address, before)
    load.wait_for_more()


def _rotate_password(load: Load) -> None:
    second, replaced = commands("### Passwords")
    run(second)
    load.move(client_settings("alice", "new-secret", "SCRAM-SHA-256"))
    run(replaced)
    with pytest.raises(KafkaError, match="invalid credentials"), Admin(_ours("alice", "old-secret")) as late:
        late.list_topics()
    with Admin(_ours("alice", "new-secret")) as late:
        assert [topic.name for topic in late.list_topics()] == ["orders"]


def _restart(cluster: ConfiguredCluster, node_id: int) -> None:
    assert cluster.node(node_id).stop(STANDSTILL_S) == 0
    cluster.node(node_id).start()


def _ours(name: str, password: str) -> dict[str, object]:
    given = parse_properties(Path("cluster/client.properties").read_text())
    del given["sasl.jaas.config"]
    return {**given, "sasl.username": name, "sasl.password": password}


def test_cluster_up_runs_the_folder_of_cluster_init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("alice.txt").write_text("old-secret\n")
    init, up = commands("## A secure cluster")[:2]
    run(init, "--port", "0", "--brokers", "1", "--controllers", "1")
    servers = [
        "--bootstrap-server",
        parse_properties(Path("cluster/client.properties").read_text())["bootstrap.servers"],
    ]
    refused = CliRunner().invoke(build_app(("cluster",)), [*up[1:], "--brokers", "2"])
    assert (refused.exit_code, "--brokers" in refused.output) == (2, True)
    with subprocess.Popen([sys.executable, "-m", *up], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = next(line for line in process.stdout if line.startswith("barnabas cluster ready: "))
            listed = run(["barnabas", "cluster", "describe", "--json"], *ADMIN)
            assert '"answers": true' in listed
            for words in commands("## Users"):
                run(words, *(servers if words[0].startswith("kafka-") else []))
            for words in commands("## Quotas"):
                run(words, *ADMIN)
            assert servers[1] in said
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(STANDSTILL_S) == 0


def test_a_node_of_the_folder_is_started_by_hand(tmp_path: Path) -> None:
    (line,) = (line for line in PAGE.splitlines() if line.startswith("BARNABAS_ADD_SCRAM="))
    run(["barnabas", "cluster", "init", "--secure", str(tmp_path / "cluster"), "--port", "0", "--brokers", "1"])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["sh", "-c", "exec env " + line.replace("/srv", str(tmp_path))]
    with start_child(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PATH": path}) as process:
        try:
            assert process.stdout.readline().startswith("barnabas ready: CLIENTS://")
            listed = run(["barnabas", "users", "list"], "--command-config", str(tmp_path / "cluster/client.properties"))
            assert "admin" in listed
        finally:
            process.terminate()
            assert process.wait(STANDSTILL_S) == 0


class _Moving:
    """Three nodes whose settings change step by step, as the page says. The page has the settings of node 1."""

    def __init__(self, folder: Path) -> None:
        numbers = ("9092", "9093", "9191", "9192", "9193")
        self.ports = {node: dict(zip(numbers, map(str, free_ports(len(numbers))), strict=True)) for node in NODES}
        self.steps = [
            parse_properties(block)
            for block in re.findall(
                r"```properties\n(.*?)```", section_of(PAGE, "### From PLAINTEXT to SASL_SSL"), re.S
            )
        ]
        self.settings = {
            node: self._placed(
                node,
                {
                    "process.roles": "broker,controller",
                    "controller.quorum.voters": "1@host1:9093,2@host2:9093,3@host3:9093",
                    "controller.listener.names": "CONTROLLER",
                    "listeners": "PLAINTEXT://host1:9092,CONTROLLER://host1:9093",
                    "node.id": str(node),
                    "default.replication.factor": "3",
                    "min.insync.replicas": "2",
                    "group.initial.rebalance.delay.ms": "0",
                },
            )
            for node in NODES
        }
        self.nodes = {node: BrokerProcess(folder / f"node-{node}") for node in NODES}
        self.apply_settings()

    def address(self, port: str) -> str:
        """The addresses of a listener on all nodes."""
        return ",".join(self._placed(node, {"": f"host1:{port}"})[""] for node in NODES)

    def take_step(self) -> None:
        """The settings of the next block of the page hold from the next start of each node."""
        step = self.steps.pop(0)
        for node in NODES:
            self.settings[node] |= self._placed(node, step)
        self.apply_settings()

    def apply_settings(self) -> None:
        for node, process in self.nodes.items():
            process.settings = [f"{name}={value}" for name, value in self.settings[node].items()]

    def roll(self, client: Mapping[str, object]) -> None:
        for node in self.nodes.values():
            assert node.stop(STANDSTILL_S) == 0
            node.start()
            wait_in_sync(client)

    def _placed(self, node: int, settings: Mapping[str, str]) -> dict[str, str]:
        placed = {}
        for name, value in settings.items():
            if name != "controller.quorum.voters":
                value = value.replace("host1:", f"host{node}:")
            if name == "ssl.keystore.location":
                value = value.replace("node-1", f"node-{node}")
            placed[name] = re.sub(r"host(\d):(\d+)", lambda m: f"127.0.0.1:{self.ports[int(m[1])][m[2]]}", value)
        return placed


@pytest.mark.slow
def test_a_cluster_moves_from_plaintext_to_sasl_ssl_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("alice.txt").write_text("alice-secret\n")
    run(["barnabas", "cluster", "init", "--secure", "secure"])
    moving = _Moving(tmp_path)
    plain: dict[str, str] = {"bootstrap.servers": moving.address("9092")}
    secure = {
        "bootstrap.servers": moving.address("9192"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
        "ssl.ca.location": "secure/ca.pem",
    }
    user, *acls = [
        [word.replace("host1:9092", plain["bootstrap.servers"]) for word in words]
        for words in commands("### From PLAINTEXT to SASL_SSL")
    ]
    try:
        for node in moving.nodes.values():
            node.launch()
        for node in moving.nodes.values():
            node.wait_ready()
        run(["barnabas", "topics", "create", "orders", "--partitions", "3", "-b", plain["bootstrap.servers"]])
        with Load("orders", plain) as load:
            moving.take_step()
            moving.roll(plain)
            run(user)
            load.move(secure)
            moving.take_step()
            moving.roll(secure)
            for words in acls:
                run(words)
            moving.take_step()
            moving.roll(secure)
            assert moving.steps == []
            load.wait_for_more()
            load.finish()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(moving.ports[1]["9092"])))
        for node in moving.nodes.values():
            assert node.stop(STANDSTILL_S) == 0
    finally:
        for node in moving.nodes.values():
            if node.alive:
                node.kill()
