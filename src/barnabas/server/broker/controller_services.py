"""Value: what handlers of the controller's listener work with. `node` builds one and hands it to a dispatcher.

Where a handler serves brokers and controllers alike (CreateTopics, ApiVersions), the fields it uses have the same names
and meanings as those of `Services`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.core.rng import Rng
from barnabas.server.broker.apis import ApiTable
from barnabas.server.broker.controller_apis import CONTROLLER_APIS
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.broker.quorum.ports import QuorumHandle
from barnabas.server.metadata.image.cluster import ClusterImage


class ImageView(Protocol):
    """The newest committed image: a publisher, or a cache that subscribes to one."""

    @property
    def image(self) -> ClusterImage: ...


class ControllerServices(Struct):
    """Everything below the controller's listener, plugged together."""

    node_id: int
    cluster_id: str
    clock: Clock
    rng: Rng
    metadata: ImageView
    controller: ControllerChannel
    """The controller of this very node (`metadata.ControllerService`), which refuses while it is not the active one."""
    quorum: QuorumHandle
    static_config: Mapping[str, str]
    apis: ApiTable = CONTROLLER_APIS

    def on_disconnect(self, connection_id: int) -> None:
        """A controller keeps no state of a connection."""
