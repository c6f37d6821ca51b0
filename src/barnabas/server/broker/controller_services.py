"""Value: the objects that the handlers of the controllers' listener use. `node` builds one `ControllerServices`.

Some handlers (CreateTopics, ApiVersions) serve brokers and controllers. The fields that these handlers use have the
same names and meanings in `Services`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.core.reprs import repr_without
from barnabas.core.rng import Rng
from barnabas.server.broker.apis import ApiTable
from barnabas.server.broker.authorization.ports import Authorizer
from barnabas.server.broker.authorization.table import CONTROLLER_ACCESS, ApiAccess
from barnabas.server.broker.controller_apis import CONTROLLER_APIS
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.broker.listener_configs import ListenerConfigs
from barnabas.server.broker.quorum.ports import QuorumHandle
from barnabas.server.metadata.image.cluster import ClusterImage


class ImageView(Protocol):
    """Has the newest committed cluster image."""

    @property
    def image(self) -> ClusterImage: ...


class LocalController(ControllerChannel, Protocol):
    """The controller of this node."""

    def on_connection_lost(self, connection_id: int) -> None:
        """A connection to the controller's listener has ended."""
        ...


class ControllerServices(Struct):
    """The services of one controller."""

    node_id: int
    cluster_id: str
    clock: Clock
    rng: Rng
    metadata: ImageView
    controller: LocalController
    """The controller of this node (`metadata.ControllerService`). It raises NOT_CONTROLLER while another node is the
    active controller."""
    quorum: QuorumHandle
    static_config: Mapping[str, str]
    listener_configs: ListenerConfigs | None = None
    """None: a controller leaves it to the brokers to check changes of their listeners."""
    authorizer: Authorizer | None = None
    """None if every client may do everything."""
    apis: ApiTable = CONTROLLER_APIS

    __repr__ = repr_without("static_config")

    @property
    def access(self) -> Mapping[int, ApiAccess]:
        """What the client of each API must be allowed to do."""
        return CONTROLLER_ACCESS

    def on_disconnect(self, connection_id: int) -> None:
        """Notify the controller: if a broker sent its heartbeats over the connection, the broker may have died."""
        self.controller.on_connection_lost(connection_id)
