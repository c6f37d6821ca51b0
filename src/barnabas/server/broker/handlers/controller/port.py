"""Port: what the handlers of requests of brokers and controllers use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from barnabas.server.broker.forward import ControllerChannel
    from barnabas.server.broker.forwarded import ForwardedRequests
    from barnabas.server.broker.quorum.ports import QuorumHandle
    from barnabas.server.metadata.ports import ImageView


class ControllerPort(Struct, frozen=True):
    """The controller of this node."""

    cluster_id: str
    metadata: ImageView
    controller: ControllerChannel
    """It raises NOT_CONTROLLER while another node is the active controller."""
    quorum: QuorumHandle
    forwarded: ForwardedRequests
