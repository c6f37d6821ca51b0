"""Table: the assignors of consumers and of the coordinator, by their names in configs and requests."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from barnabas.protocol.assign.member import Assignor
from barnabas.protocol.assign.ranges import RangeAssignor
from barnabas.protocol.assign.round_robin import RoundRobinAssignor
from barnabas.protocol.assign.server import ServerAssignor
from barnabas.protocol.assign.server_range import ServerRangeAssignor
from barnabas.protocol.assign.simple import SimpleAssignor
from barnabas.protocol.assign.sticky import CooperativeStickyAssignor, StickyAssignor
from barnabas.protocol.assign.uniform import UniformAssignor

_ALL: Final[tuple[Assignor, ...]] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)

CLASSIC_ASSIGNORS: Final = MappingProxyType({assignor.name: assignor for assignor in _ALL})
"""The assignors for `partition.assignment.strategy`."""

_SERVER: Final[tuple[ServerAssignor, ...]] = (UniformAssignor(), ServerRangeAssignor())

SERVER_ASSIGNORS: Final = MappingProxyType({assignor.name: assignor for assignor in _SERVER})
"""The assignors for `group.consumer.assignors`."""

SHARE_ASSIGNORS: Final = MappingProxyType({assignor.name: assignor for assignor in (SimpleAssignor(),)})
"""The assignors for `group.share.assignors`."""
