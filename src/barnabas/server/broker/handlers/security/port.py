"""Port: what the handlers of users and delegation tokens use, on the listeners of brokers and of controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from barnabas.core.reprs import repr_without

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.server.broker.forward import ControllerChannel
    from barnabas.server.metadata.ports import ImageView


class SecurityPort(Struct, frozen=True):
    """The way to the active controller, and the node's copy of the users and tokens."""

    metadata: ImageView
    controller: ControllerChannel
    static_config: Mapping[str, str]
    """The configs in server.properties and on the command line, as text."""

    __repr__ = repr_without("static_config")
