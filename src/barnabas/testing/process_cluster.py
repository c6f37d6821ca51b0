"""Shell: runs a cluster of real nodes on this machine. Each node is a process with its own data directory.

with ClusterProcess(folder) as cluster:                        # three nodes, each broker and controller
    ... cluster.bootstrap_servers ...
    cluster.node(2).kill()

with ClusterProcess(folder, brokers=3, controllers=3) as cluster:     # brokers 1 to 3, controllers 101 to 103

with ClusterProcess(folder, proxied=True) as cluster:          # clients connect to the brokers' proxies
    cluster.proxies[2].delay(200)
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from barnabas.core.properties import parse_properties
from barnabas.testing.known_brokers import known_brokers
from barnabas.testing.ports import free_ports, free_range
from barnabas.testing.process import START_SECONDS, BrokerProcess
from barnabas.testing.proxy import Proxy, listeners_behind

FIRST_CONTROLLER: Final = 101
"""The node id of the first controller that is not also a broker."""
QUORUM_MAX: Final = 3
"""The number of brokers that are also controllers, if there are no separate controllers. More voters make every
metadata change slower. With two brokers only the first is a controller, since a quorum of two survives no failure
either."""

_POLL_S: Final = 0.02


class ClusterProcess:
    """A cluster of `brokers` brokers and `controllers` separate controllers. Without separate controllers the first
    three brokers are controllers, too (with two brokers only the first).

    `port` is the port of the first broker; the other brokers use the ports that follow, and controller listeners use
    these ports plus 10,000. With port 0 free ports are chosen. `hosts` has the address of each node in the order of
    the ids (default 127.0.0.1). `prefixes` has, in the same order, the words that precede the command line of each
    node, such as `ip netns exec NAME`. `settings` are `name=value` strings for every node. The nodes get `death_signal`
    when this process ends (Linux only).

    With `processes` above 1 each broker stands for a host with so many brokers (`barnabas serve --processes`): the
    ids of a host's brokers follow each other, as do their ports, and the host is their rack. `broker_ids` and `nodes`
    then have the first id of each host.

    With `proxied` the clients connect to a proxy in front of each broker (`proxies`, by node id), which makes faults
    between clients and brokers; the brokers reach each other directly. This works on 127.0.0.1 with free ports only.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        controllers: int = 0,
        port: int = 0,
        hosts: Sequence[str] = (),
        prefixes: Sequence[Sequence[str]] = (),
        settings: Sequence[str] = (),
        processes: int = 1,
        proxied: bool = False,
        death_signal: int = signal.SIGKILL,
    ) -> None:
        if proxied and (port or hosts or processes > 1):
            raise ValueError("proxied=True needs free ports of 127.0.0.1: leave out port, hosts and processes.")
        self.folder = folder
        self.processes = processes
        self._in_other_networks = bool(prefixes)
        self.proxies: dict[int, Proxy] = {}
        self.broker_ids = list(range(1, brokers * processes + 1, processes))
        own = list(range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers))
        self.controller_ids = own or self.broker_ids[: QUORUM_MAX if brokers >= QUORUM_MAX else 1]
        ids = sorted({*self.broker_ids, *own})
        at = dict(zip(ids, hosts or ["127.0.0.1"] * len(ids), strict=True))
        before = dict(zip(ids, prefixes or [()] * len(ids), strict=True))
        ports = _ports(port, len(ids), processes)
        client = {node_id: f"{at[node_id]}:{ports[place][0]}" for place, node_id in enumerate(ids)}
        quorum = {node_id: f"{at[node_id]}:{ports[place][1]}" for place, node_id in enumerate(ids)}
        internal = {node_id: f"{at[node_id]}:{ports[place][2]}" for place, node_id in enumerate(ids)}
        if proxied:
            self.proxies = {node_id: Proxy(client[node_id]) for node_id in self.broker_ids}
        voters = ",".join(f"{node_id}@{quorum[node_id]}" for node_id in self.controller_ids)
        self.nodes = {
            node_id: BrokerProcess(
                folder / (f"node-{node_id}" if processes == 1 else f"host-{(node_id + processes - 1) // processes}"),
                settings=[
                    f"node.id={node_id}",
                    f"controller.quorum.voters={voters}",
                    *self._place(node_id, client[node_id], quorum[node_id], internal[node_id]),
                    *settings,
                ],
                prefix=before[node_id],
                death_signal=death_signal,
                processes=processes if processes > 1 and node_id in self.broker_ids else None,
            )
            for node_id in ids
        }
        addresses = {node_id: proxy.address for node_id, proxy in self.proxies.items()} or client
        self.bootstrap_servers = ",".join(addresses[node_id] for node_id in self.broker_ids)
        self.bootstrap_controllers = ",".join(quorum[node_id] for node_id in self.controller_ids)

    def node(self, node_id: int) -> BrokerProcess:
        return self.nodes[node_id]

    def start(self) -> None:
        """Returns when every node is ready, and every broker knows every other. Raises RuntimeError with the log of a
        node that does not become ready."""
        for node in self.nodes.values():
            node.launch()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Returns and raises as `start` does. All nodes must have been launched."""
        for node in self.nodes.values():
            node.wait_ready(START_SECONDS)
        if self._in_other_networks:
            return
        deadline = time.monotonic() + START_SECONDS
        for node_id in self.broker_ids:
            self._wait_until_all_are_known(self.nodes[node_id].bootstrap_servers, deadline)

    def _wait_until_all_are_known(self, address: str, deadline: float) -> None:
        """Returns when the broker at this address knows every broker, at once if it requires TLS or SASL.

        A broker that was ready before the others reads in the metadata log that they are ready, too, a moment later.
        """
        every = {first + place for first in self.broker_ids for place in range(self.processes)}
        while (known := known_brokers(address)) is not None and not every <= known:
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"the broker at {address} knows only the brokers {sorted(known)}, not {sorted(every)}"
                )
            time.sleep(_POLL_S)  # a broker cannot notify this process

    def kill_all(self) -> None:
        """Kills every running node with SIGKILL."""
        for node in self.nodes.values():
            if node.alive:
                node.kill()

    def close(self) -> None:
        """Kills every running node, and closes the proxies."""
        self.kill_all()
        for proxy in self.proxies.values():
            proxy.close()

    def stop(self, seconds: float = 60.0) -> None:
        """Stops the nodes. All brokers are asked at once, then all nodes that are only controllers: a broker needs a
        controller to hand over the partitions that it leads. Raises subprocess.TimeoutExpired if the nodes have not
        ended after `seconds`."""
        deadline = time.monotonic() + seconds
        brokers = [node for node_id, node in sorted(self.nodes.items()) if node_id in self.broker_ids]
        others = [node for node_id, node in sorted(self.nodes.items()) if node_id not in self.broker_ids]
        for group in (brokers, others):
            stopping = [node for node in group if node.alive]
            for node in stopping:
                node.resume()
                node.terminate()
            for node in stopping:
                node.stop(max(deadline - time.monotonic(), 0.1))

    def _place(self, node_id: int, client: str, quorum: str, internal: str) -> list[str]:
        listeners, roles = [], []
        if node_id in self.broker_ids:
            listeners.append(f"PLAINTEXT://{client}")
            roles.append("broker")
        if node_id in self.controller_ids:
            listeners.append(f"CONTROLLER://{quorum}")
            roles.append("controller")
        placed = [f"process.roles={','.join(roles)}", f"listeners={','.join(listeners)}"]
        if node_id in self.proxies:
            behind = listeners_behind(self.proxies[node_id], client, internal, quorum if "controller" in roles else "")
            placed = [placed[0], *(f"{name}={value}" for name, value in behind.items())]
        if self.processes > 1 and node_id in self.broker_ids:
            placed.append(f"broker.rack=host-{(node_id + self.processes - 1) // self.processes}")
        return placed

    def __enter__(self) -> ClusterProcess:
        try:
            self.start()
        except BaseException:  # KeyboardInterrupt, too: no process may stay
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.stop()
        finally:
            self.close()


class ConfiguredCluster(ClusterProcess):
    """The cluster whose nodes have their settings in `folder`/nodes/node-ID.properties (`barnabas cluster init`).

    `settings` are further settings for every node, and have precedence over the files.
    """

    def __init__(self, folder: Path, *, settings: Sequence[str] = (), death_signal: int = signal.SIGKILL) -> None:
        self.folder, self.processes, self.proxies = folder, 1, {}
        self._in_other_networks = False
        found = {path: parse_properties(path.read_text(encoding="utf-8")) for path in node_files(folder)}
        files = {int(texts["node.id"]): (path, texts) for path, texts in sorted(found.items())}
        roles = {node_id: texts["process.roles"].split(",") for node_id, (_, texts) in files.items()}
        self.broker_ids = sorted(node_id for node_id, own in roles.items() if "broker" in own)
        self.controller_ids = sorted(node_id for node_id, own in roles.items() if "controller" in own)
        self.nodes = {
            node_id: BrokerProcess(
                folder / f"node-{node_id}", settings=settings, config=path, death_signal=death_signal
            )
            for node_id, (path, _) in files.items()
        }
        clients = {node_id: texts["advertised.listeners"].split(",")[0] for node_id, (_, texts) in files.items()}
        self.bootstrap_servers = ",".join(clients[node_id].partition("//")[2] for node_id in self.broker_ids)
        voters = next(iter(files.values()))[1]["controller.quorum.voters"]
        self.bootstrap_controllers = ",".join(voter.partition("@")[2] for voter in voters.split(","))


def node_files(folder: Path) -> list[Path]:
    """The files with which `barnabas cluster init` has configured the nodes; empty in another folder."""
    return sorted((folder / "nodes").glob("node-*.properties"))


def _ports(first: int, count: int, processes: int) -> list[tuple[int, int, int]]:
    """For each node the ports of its client listener, of its controller listener, and of its listener for other
    brokers, which only brokers behind proxies have. The client listener needs `processes` consecutive ports."""
    if processes > 1 and not first:
        first = free_range(count * processes)
    if first:
        return [(first + place * processes, first + 10_000 + place * processes, 0) for place in range(count)]
    free = free_ports(3 * count)
    return list(zip(free[:count], free[count : 2 * count], free[2 * count :], strict=True))
