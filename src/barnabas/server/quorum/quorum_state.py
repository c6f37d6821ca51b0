"""Codec: the `quorum-state` file of the metadata log: the epoch, its leader, and this node's vote.

The file has one line of JSON, as written by Kafka's FileQuorumStateStore. Version 0 (kraft.version 0, a static quorum)
has the ids of the voters. Version 1 (KIP-853) has, instead, the directory id of the replica that this node voted for.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from barnabas.core.errors import BarnabasError

FILE_NAME = "quorum-state"
NO_VOTE = -1


class QuorumStateError(BarnabasError):
    """The file cannot be parsed."""


class QuorumState(Struct, frozen=True):
    """One election state. Only version 0 has `voters`."""

    leader_id: int = -1
    leader_epoch: int = 0
    voted_id: int = NO_VOTE
    voters: tuple[int, ...] = ()
    cluster_id: str = ""
    voted_directory: str = "AAAAAAAAAAAAAAAAAAAAAA"
    version: int = 0


def render_quorum_state(state: QuorumState) -> str:
    fields: dict[str, Any]
    if state.version == 0:
        fields = {
            "clusterId": state.cluster_id,
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in state.voters],
            "data_version": 0,
        }
    else:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": state.voted_directory,
            "data_version": 1,
        }
    return json.dumps(fields, separators=(",", ":"))


def parse_quorum_state(text: str) -> QuorumState:
    """The state of the quorum in the text of the file `quorum-state`. Raises QuorumStateError."""
    try:
        fields = json.loads(text)
        version = int(fields["data_version"])
        if version not in (0, 1):
            raise QuorumStateError(
                f"quorum-state has version {version}, but only 0 and 1 are supported. Upgrade this node."
            )
        return QuorumState(
            leader_id=int(fields["leaderId"]),
            leader_epoch=int(fields["leaderEpoch"]),
            voted_id=int(fields["votedId"]),
            voters=tuple(int(voter["voterId"]) for voter in fields.get("currentVoters") or ()),
            cluster_id=fields.get("clusterId") or "",
            voted_directory=fields.get("votedDirectoryId") or QuorumState().voted_directory,
            version=version,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise QuorumStateError(
            f"quorum-state is damaged ({error}); restore it, or the directory, from a backup."
        ) from error
