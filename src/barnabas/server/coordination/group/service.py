"""Shell: the group coordinator as the broker calls it (Kafka's GroupCoordinatorService): one async method per API.

Each method takes the request's context and the decoded request, and returns the response with per-group or top-level
error codes. The methods raise no KafkaError. The broker has checked authorization, quotas and the API version. A method
for several groups queries the shard of each group.
"""

from __future__ import annotations

from barnabas.server.coordination.group.calls.admin import AdminCalls
from barnabas.server.coordination.group.calls.membership import MembershipCalls
from barnabas.server.coordination.group.calls.offsets import OffsetCalls


class GroupCoordinator(MembershipCalls, OffsetCalls, AdminCalls):
    """The coordinator of the groups whose partition of `__consumer_offsets` this node leads. Each base class has the
    calls about one subject: members, offsets, administration."""
