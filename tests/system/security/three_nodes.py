"""Three nodes in this process, each a broker and a controller, with listeners for clients, brokers and controllers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from barnabas.server.node.config import build_config
from barnabas.server.node.server import Node
from barnabas.testing.ports import free_ports

NODES = (1, 2, 3)


@asynccontextmanager
async def three_nodes(
    folder: Path,
    settings_of: Callable[[int], Mapping[str, str]],
    *,
    host: str = "localhost",
    first_users: Sequence[str] = (),
) -> AsyncIterator[str]:
    """The bootstrap servers of the cluster: the addresses of the listeners CLIENTS. Brokers use NODES, and controllers
    CONTROLLER. `settings_of` gives the other settings of a node, by its id."""
    ports = free_ports(3 * len(NODES))
    places = {
        node: dict(zip(("CONTROLLER", "CLIENTS", "NODES"), ports[i::3], strict=True)) for i, node in enumerate(NODES)
    }
    voters = ",".join(f"{node}@{host}:{place['CONTROLLER']}" for node, place in places.items())
    nodes: list[Node] = []
    ready: list[asyncio.Event] = []
    async with asyncio.TaskGroup() as tasks:
        for node_id, place in places.items():
            settings = {
                "node.id": str(node_id),
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "inter.broker.listener.name": "NODES",
                "listeners": ",".join(f"{name}://{host}:{port}" for name, port in place.items()),
                **settings_of(node_id),
            }
            data_dir = str(folder / str(node_id))
            node = Node(build_config(settings, data_dir=data_dir, metadata_fsync=False, first_users=first_users))
            started = asyncio.Event()
            nodes.append(node)
            ready.append(started)
            tasks.create_task(node.run(lambda _, started=started: started.set()))
        try:
            for started in ready:
                await started.wait()
            yield ",".join(f"{host}:{place['CLIENTS']}" for place in places.values())
        finally:
            for node in nodes:
                node.stop()
