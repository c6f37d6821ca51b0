"""Shell: finds out whether enough voters may run to elect a leader, by connecting to their addresses."""

from __future__ import annotations

import asyncio

from barnabas.server.metadata.controller.suspicions import ProbeOutcome
from barnabas.server.peers.broker_probe import BrokerConnector
from barnabas.server.raft.machine.values import Voters


async def majority_may_run(voters: Voters, node_id: int) -> bool:
    """False if so many voters refuse connections that the others, among them this node, are not a majority.

    A voter that does not answer, or whose address is unknown, may run. An empty set of voters (ZooKeeper) always may.
    """
    connector = BrokerConnector()
    others = [voter for voter in voters.members if voter.key.id != node_id and voter.endpoints]
    async with asyncio.TaskGroup() as tasks:
        probes = [tasks.create_task(connector.probe([e[1:] for e in voter.endpoints])) for voter in others]
    refused = sum(probe.result() is ProbeOutcome.REFUSED for probe in probes)
    return not voters.members or len(voters.members) - refused >= voters.majority
