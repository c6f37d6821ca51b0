"""Table: the assignors by the names that settings and the wire use: the consumers' own, and the coordinator's."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from barnabas.assign.member import Assignor
from barnabas.assign.ranges import RangeAssignor
from barnabas.assign.round_robin import RoundRobinAssignor
from barnabas.assign.server import ServerAssignor
from barnabas.assign.server_range import ServerRangeAssignor
from barnabas.assign.simple import SimpleAssignor
from barnabas.assign.sticky import CooperativeStickyAssignor, StickyAssignor
from barnabas.assign.uniform import UniformAssignor

_ALL: Final[tuple[Assignor, ...]] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)

CLASSIC_ASSIGNORS: Final = MappingProxyType({assignor.name: assignor for assignor in _ALL})
"""`partition.assignment.strategy`"""

_SERVER: Final[tuple[ServerAssignor, ...]] = (UniformAssignor(), ServerRangeAssignor())

SERVER_ASSIGNORS: Final = MappingProxyType({assignor.name: assignor for assignor in _SERVER})
"""`group.consumer.assignors`"""

SHARE_ASSIGNORS: Final = MappingProxyType({assignor.name: assignor for assignor in (SimpleAssignor(),)})
"""`group.share.assignors`"""
