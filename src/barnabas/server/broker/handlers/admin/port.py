"""Port: what the handlers of administration use, on the listeners of brokers and of controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from barnabas.core.reprs import repr_without

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.server.broker.apis import ApiTable
    from barnabas.server.broker.authorization.ports import Authorizer
    from barnabas.server.broker.forward import ControllerChannel, QuorumStatus
    from barnabas.server.broker.listener_configs import ListenerConfigs
    from barnabas.server.metadata.ports import ImageView


class AdminPort(Struct, frozen=True):
    """The way to the active controller, and the node's copy of the metadata."""

    node_id: int
    apis: ApiTable
    """The APIs of the listener, which ApiVersions returns."""
    metadata: ImageView
    controller: ControllerChannel
    """On a controller its own service, which raises NOT_CONTROLLER while another node is the active controller."""
    quorum: QuorumStatus
    static_config: Mapping[str, str]
    """The configs in server.properties and on the command line, as text."""
    authorizer: Authorizer | None
    """None if every client may do everything."""
    listener_configs: ListenerConfigs | None = None
    """Checks changes of the listeners of this broker; None on a controller."""

    __repr__ = repr_without("static_config")
