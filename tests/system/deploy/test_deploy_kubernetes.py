"""The pods of deploy/kubernetes, run as processes on this machine with the environment that Kubernetes would give."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from barnabas import Admin, Consumer, Producer
from barnabas.client.values import NewTopic
from barnabas.core.child_processes import start_child
from barnabas.core.properties import parse_properties
from barnabas.testing.ports import free_ports
from tests.progress import STANDSTILL_S, described, wait_until

pytestmark = pytest.mark.system

MANIFEST = Path(__file__).parents[3] / "deploy" / "kubernetes" / "barnabas.yaml"
PODS = (1, 2, 3)
PORTS = ("9092", "9093", "9094", "9404")
SECRET = "/etc/barnabas/secret"


class Pods:
    """The pods with addresses of this machine: each pod's ports are replaced by free ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects = {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}
        self.container = self.objects["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
        free = iter(free_ports(len(PODS) * len(PORTS)))
        self.ports = {(pod, port): next(free) for pod in PODS for port in PORTS}

    def environment(self, pod: int) -> dict[str, str]:
        known = dict(self.objects["ConfigMap"]["data"])
        for row in self.container["env"]:
            text = row["value"] if "value" in row else self._value_from(row["valueFrom"], pod)
            known[row["name"]] = re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], text)
        local = {name: self._local(text, pod) for name, text in known.items()}
        return {**os.environ, **local, "BARNABAS_DATA_DIR": str(self.folder / f"data-{pod}")}

    def arguments(self, pod: int) -> list[str]:
        at = f"127.0.0.1:{self.ports[pod, '9404']}"
        return [argument.replace("0.0.0.0:9404", at) for argument in self.container["args"]]

    def url(self, pod: int, probe: str) -> str:
        path = self.container[probe]["httpGet"]["path"]
        return f"http://127.0.0.1:{self.ports[pod, '9404']}{path}"

    def _value_from(self, source: dict[str, Any], pod: int) -> str:
        match source:
            case {"fieldRef": {"fieldPath": "metadata.name"}}:
                return f"{self.objects['StatefulSet']['metadata']['name']}-{pod}"
            case {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}:
                return str(pod)
            case {"secretKeyRef": {"key": key}}:
                return (self.folder / "secret" / key).read_text()
        raise AssertionError(f"Kubernetes has no value for {source}")

    def _local(self, text: str, pod: int) -> str:
        """The same text with the names, ports and paths of this machine."""
        named = re.sub(
            r"barnabas-(\d)\.barnabas:(\d+)", lambda found: f"127.0.0.1:{self.ports[int(found[1]), found[2]]}", text
        )
        bound = re.sub(r"//:(\d+)", lambda found: f"//127.0.0.1:{self.ports[pod, found[1]]}", named)
        return bound.replace(SECRET, str(self.folder / "secret"))


def make_secret(folder: Path) -> dict[str, object]:
    """The files of the Secret by `barnabas cluster init`, and the settings of the administrator's clients."""
    made = folder / "made"
    hosts = [word for _ in PODS for word in ("--host", "127.0.0.1")]
    command = [sys.executable, "-m", "barnabas", "cluster", "init", "--secure", str(made), *hosts]
    subprocess.run(command, check=True, capture_output=True, timeout=STANDSTILL_S)
    (folder / "secret").mkdir()
    for path in (made / "ca.pem", made / "first-users", *(made / "nodes").glob("*.pem")):
        (folder / "secret" / path.name).write_bytes(path.read_bytes())
    return dict(parse_properties((made / "client.properties").read_text()))


@contextmanager
def running(pods: Pods) -> Iterator[dict[int, subprocess.Popen[bytes]]]:
    """All pods at once, as with podManagementPolicy Parallel."""
    processes = {}
    try:
        for pod in PODS:
            with (pods.folder / f"log-{pod}.txt").open("wb") as log:
                command = [sys.executable, "-m", "barnabas", *pods.arguments(pod)]
                processes[pod] = start_child(command, stdout=log, stderr=log, env=pods.environment(pod))
        yield processes
    finally:
        for process in processes.values():
            process.kill()
            process.wait(STANDSTILL_S)


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            json.load(answer) if "readyz" in url else answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_pods_become_ready_serve_and_end_cleanly(tmp_path: Path) -> None:
    settings = make_secret(tmp_path)
    pods = Pods(tmp_path)
    clients = {**settings, "bootstrap.servers": ",".join(f"127.0.0.1:{pods.ports[pod, '9092']}" for pod in PODS)}
    with running(pods) as processes:
        for pod, process in processes.items():
            log = tmp_path / f"log-{pod}.txt"
            wait_until(
                lambda pod=pod, process=process: (  # type: ignore[misc]  # mypy gives no type to bound defaults
                    process.poll() is not None or status(pods.url(pod, "readinessProbe")) == 200
                ),
                f"pod {pod} is ready",
                progress=log.read_text,
            )
            assert process.poll() is None, log.read_text()
            assert status(pods.url(pod, "livenessProbe")) == 200
        with Admin(clients) as admin:
            admin.create_topics([NewTopic("orders", 3)])
            assert [len(p.replicas) for p in described(admin, "orders").partitions] == [3, 3, 3]
        with Producer(clients, acks="all") as producer:
            for number in range(30):
                producer.send("orders", b"%d" % number)
        with Consumer(clients, group_id="readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            records = iter(consumer)
            found = [next(records).value for _ in range(30)]
        assert sorted(found) == sorted(b"%d" % number for number in range(30))
        for process in processes.values():
            process.terminate()
        assert [process.wait(STANDSTILL_S) for process in processes.values()] == [0, 0, 0]
