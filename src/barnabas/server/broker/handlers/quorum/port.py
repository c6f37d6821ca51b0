"""Port: what the handlers of the metadata quorum use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from barnabas.server.broker.quorum.ports import QuorumHandle


class QuorumPort(Struct, frozen=True):
    """This node's replica of the metadata log."""

    node_id: int
    cluster_id: str
    quorum: QuorumHandle
