"""Machine: computes the initial voters of the quorum when a node starts. The first row that applies wins.

the log or a snapshot has voters         the voters and the kraft.version in the log or snapshot (used by `RaftMachine`)
controller.quorum.voters is set          the configured voters, static: kraft.version 0
quorum-state lists only this node        this node is the only voter, kraft.version 0
the log has records, the node may found  this node is the only voter, kraft.version 0
none of these, the node may found        this node is the only voter, kraft.version 1: others may join (KIP-853)
none of these, the node may not found    no voters: the node observes, finds the leader through the bootstrap servers,
                                         and may join
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from barnabas.server.broker.quorum.parts import LISTENER
from barnabas.server.metadata.errors import MetadataError
from barnabas.server.quorum.quorum_state import QuorumState
from barnabas.server.raft.machine.values import (
    NO_DIRECTORY,
    Endpoints,
    LogSummary,
    RaftConfig,
    RaftEndpoint,
    ReplicaKey,
    VoterNode,
    Voters,
)

Address = tuple[str, int]
"""The address of a controller: host and port."""
_FIRST_BOOTSTRAP_ID: Final = -2
"""Bootstrap servers have unknown node ids. They get negative ids, from this one downwards, as in Kafka."""


def starting_config(
    config: RaftConfig,
    me: ReplicaKey,
    summary: LogSummary,
    state: QuorumState | None,
    *,
    voters: Mapping[int, Address],
    bootstrap: Sequence[Address],
    endpoints: Endpoints,
    listener: str,
    may_found: bool,
) -> RaftConfig:
    """Return `config` with the voters, the kraft.version and the addresses set. Addresses without a name of their own
    are those of `listener`, at which this node connects to controllers.

    Raises MetadataError if the directory contradicts the configuration.
    """
    name = listener or LISTENER
    config = replace(
        config,
        endpoints=endpoints,
        bootstrap=tuple(
            (_FIRST_BOOTSTRAP_ID - index, (RaftEndpoint(name, host, port),))
            for index, (host, port) in enumerate(bootstrap)
        ),
    )
    if voters:
        static = [
            VoterNode(ReplicaKey(node), (RaftEndpoint(name, *voters[node]),), max_version=1) for node in sorted(voters)
        ]
        return replace(config, voters=Voters(tuple(static)), kraft_version=0)
    if summary.voters:
        return replace(config, voters=Voters(), kraft_version=0)
    former = state.voters if state is not None else ()
    others = [node for node in former if node != me.id]
    if others:
        raise MetadataError(
            f"The metadata log belongs to a quorum of the nodes {sorted(former)}; this node ({me.id}) cannot be its "
            "only voter. Set controller.quorum.voters to all of them, as before, and start them all."
        )
    is_new = summary.end_offset == 0
    if config.can_vote and (former or (may_found and not is_new)):
        alone = Voters((VoterNode(ReplicaKey(me.id, NO_DIRECTORY), endpoints),))
        return replace(config, voters=alone, kraft_version=0)
    if config.can_vote and may_found:
        return replace(config, voters=Voters((VoterNode(me, endpoints),)), kraft_version=1)
    return replace(config, voters=Voters(), kraft_version=0)
