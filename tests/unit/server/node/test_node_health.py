"""The health of a node, and the log lines of a node without an active controller."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from barnabas.server.node.config import build_config
from barnabas.server.node.health import Health, NodeState, Part, judge_health
from barnabas.server.node.quorum_watch import FIRST_S, REPEAT_MAX_S, LeaderlessTime
from barnabas.server.node.server import Node
from barnabas.server.node.setup.log_dirs import full_directories
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.fs import DiskUsage
from barnabas.testing.ports import free_ports
from tests.progress import until
from tests.unit.server.node.test_node_metrics_pages import get

READY = NodeState(
    is_started=True, is_stopping=False, is_broker=True, is_fenced=False, are_logs_open=True,
    without_controller_s=0.5, session_s=9.0, directories=2,
)  # fmt: skip
BROKEN = "/a is offline: the disk is gone"
STARTING = {"is_started": False, "are_logs_open": False}


class Disk(Struct, frozen=True):
    """A log directory with so many free bytes."""

    path: str
    free: int
    failure: str | None = None

    def disk_usage(self) -> DiskUsage:
        if self.free < 0:
            raise StorageError("cannot measure")
        return DiskUsage(1 << 30, self.free)


def test_a_full_disk_is_one_without_space_in_a_directory_that_works() -> None:
    disks = [Disk("/a", 0), Disk("/b", 1 << 20), Disk("/c", 0, "the disk is gone"), Disk("/d", -1)]
    assert full_directories(disks) == ["/a"]


def health(*, alive: bool = True, **reasons: tuple[str, ...]) -> Health:
    """The health of a broker; `reasons` are those of the parts that are not ready."""
    names = ("quorum", "logs", "listeners", "broker", "node")
    return Health(alive, tuple(Part(name, reasons.get(name, ())) for name in names))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, health()),
        (
            STARTING | {"without_controller_s": 0.0},
            health(logs=("The logs are not open yet.",), listeners=("The node is starting.",)),
        ),
        (
            STARTING | {"waits_for": "2@h:1: refused the connection"},
            health(
                quorum=(
                    "No controller has been active for 0 s, as far as this node knows. The controllers: 2@h:1: refused "
                    "the connection.",
                ),
                logs=("The logs are not open yet.",),
                listeners=("The node is starting.",),
            ),
        ),
        (
            {"full": ["/a"]},
            health(logs=("The disk of /a is full: nothing can be written to it until there is space.",)),
        ),
        ({"is_stopping": True, "is_fenced": True}, health(node=("The node is stopping.",))),
        (
            {"is_fenced": True},
            health(broker=("The broker is fenced: it leads no partition until the controller unfences it.",)),
        ),
        ({"without_controller_s": 9.0}, health()),
        (
            {"without_controller_s": 11.2},
            health(quorum=("No controller has been active for 11 s, as far as this node knows.",)),
        ),
        ({"offline": [BROKEN]}, health(logs=(BROKEN,))),
        ({"offline": [BROKEN, BROKEN]}, health(alive=False, logs=(BROKEN, BROKEN))),
    ],
)
def test_health_of_a_node(facts: dict[str, Any], expected: Health) -> None:
    assert judge_health(replace(READY, **facts)) == expected


def test_health_of_a_controller_has_no_part_of_a_broker() -> None:
    parts = judge_health(replace(READY, is_broker=False, is_fenced=True)).parts
    assert [part.name for part in parts] == ["quorum", "logs", "listeners", "node"]


def test_lack_of_a_leader_is_logged_seldom_and_its_end_once() -> None:
    time = LeaderlessTime(0)
    due = [now / 4 for now in range(4 * 300) if time.on_check(now / 4, led=False)]
    assert due == [FIRST_S, 5.0, 21.0, 21.0 + REPEAT_MAX_S, 21.0 + 2 * REPEAT_MAX_S, 21.0 + 3 * REPEAT_MAX_S, 261.0]
    assert time.since == 0
    assert time.on_check(300, led=True)
    assert time.since is None
    assert not time.on_check(301, led=True)
    assert not time.on_check(302, led=False), "a short election is not logged"
    assert not time.on_check(302.9, led=True)


def test_node_without_a_quorum_says_what_it_waits_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own, second, third = free_ports(3)
    texts = {
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{own},2@127.0.0.1:{second},3@127.0.0.1:{third}",
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{own}",
        "controller.quorum.election.timeout.ms": "2000",  # the others are asked between the lines of 1 s and 5 s
    }
    config = build_config(texts, data_dir=str(tmp_path))

    async def main() -> None:
        node = Node(config, cluster_id="4L6g3nShT-eMCtK--X86sw", metrics_url="http://127.0.0.1:0")
        running = asyncio.create_task(node.run())
        await until(lambda: len(lines(caplog)) >= 2, "the node logs that it waits", progress=running.done)
        assert node.pages is not None
        answers = [
            await asyncio.to_thread(get, node.pages.url.replace("/metrics", path)) for path in ("/healthz", "/readyz")
        ]
        (alive, _, lines_of_page), (ready, _, text) = answers
        assert (alive, ready) == (200, 503)
        assert lines_of_page.endswith("The node is starting.\n")
        (reason,) = json.loads(text)["parts"]["quorum"]["reasons"]
        assert f"The controllers: 2@127.0.0.1:{second}: refused the connection" in reason
        node.stop()
        await running

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert lines(caplog)[:2] == [
        f"2@127.0.0.1:{second}: {outcome}; 3@127.0.0.1:{third}: {outcome}"
        for outcome in ("not asked yet", "refused the connection")
    ]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What each log line says about the controllers."""
    waits = [record for record in caplog.records if "waiting for an active controller" in record.getMessage()]
    return [vars(record)["fields"]["controllers"] for record in waits]
