"""A static quorum becomes a dynamic one, and its voters go and come by hand, with the commands that people use."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.progress import until
from tests.system.quorum.test_quorum_nodes import ALL, Nodes, nodes


async def tool(name: str, at: int, *arguments: str) -> str:
    """One of Kafka's by its module, or `barnabas`; what it printed, after a success or not."""
    if name == "barnabas":
        command = [sys.executable, "-m", "barnabas", *arguments, "--bootstrap-server", f"127.0.0.1:{at}"]
    else:
        start = f"from barnabas.cli.kafka.cluster.{name} import main; main()"
        command = [sys.executable, "-c", start, "--bootstrap-server", f"127.0.0.1:{at}", *arguments]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    return (done.stdout + done.stderr).strip()


async def voters(made: Nodes, wanted: tuple[int, ...]) -> None:
    await until(
        lambda: all(made.log(node_id).voter_set.ids == wanted for node_id in made.running), f"{wanted} are the voters"
    )


@pytest.mark.system
def test_static_quorum_becomes_dynamic_and_changes_its_voters(tmp_path: Path) -> None:
    async def main() -> None:
        async with nodes(tmp_path, static=True) as made:
            leader = await made.leader()
            gone = next(node_id for node_id in ALL if node_id != leader)
            left = tuple(node_id for node_id in ALL if node_id != gone)
            at = made.clients[leader]
            assert "kraft.version" in await tool("barnabas", at, "cluster", "remove-controller", str(gone))
            while (said := await tool("features", at, "upgrade", "--feature", "kraft.version=1")).endswith(
                "directory."
            ):
                pass  # a voter tells its directory a moment after it has started
            assert said == "kraft.version was upgraded to 1."
            assert "kraft.version" in await tool("features", at, "downgrade", "--feature", "kraft.version=0")
            assert [made.log(node_id).kraft_version for node_id in (leader,)] == [1]

            said = await tool("barnabas", at, "cluster", "remove-controller", str(gone))
            assert said == f"controller {gone} is not a voter any more"
            await voters(made, left)
            place = f"CONTROLLER://127.0.0.1:{made.controllers[gone]}"
            said = await tool("barnabas", at, "cluster", "add-controller", str(gone), place)
            assert said == f"controller {gone} is a voter"
            await voters(made, ALL)
            assert "No controller 9 is a voter" in await tool("barnabas", at, "cluster", "remove-controller", "9")

            key = next(key for key in made.log(leader).voter_set.keys if key.id == gone)
            text = next(
                line.partition("=")[2]
                for line in (tmp_path / str(gone) / "meta.properties").read_text().splitlines()
                if line.startswith("directory.id=")
            )
            said = await tool("metadata_quorum", at, "remove-controller", "-i", str(gone), "-d", text)
            assert said == f"Removed KRaft controller {gone} with directory id {text}"
            await voters(made, left)
            server = tmp_path / "server.properties"
            server.write_text(
                f"node.id={gone}\nlog.dirs={tmp_path / str(gone)}\nprocess.roles=broker,controller\n"
                f"listeners=PLAINTEXT://127.0.0.1:{made.clients[gone]},{place}\n"
                "controller.listener.names=CONTROLLER\n"
                f"controller.quorum.bootstrap.servers=127.0.0.1:{made.controllers[leader]}\n"
            )
            said = await tool("metadata_quorum", at, "--command-config", str(server), "add-controller")
            assert said == f"Added controller {gone} with directory id {text} and endpoints: {place}"
            await voters(made, ALL)
            assert key in made.log(leader).voter_set.keys

    asyncio.run(main())
