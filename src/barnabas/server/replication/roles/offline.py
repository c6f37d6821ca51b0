"""Value: the role of a partition that this broker hosts but neither leads nor follows."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.errors import ErrorCode


class OfflineRole(NamedTuple):
    """The partition has no role yet, has been removed from this broker, or its log directory is offline.

    Every request is rejected with `reason` (Kafka: `HostedPartition.Offline`).
    """

    reason: ErrorCode
    message: str | None = None


NO_ROLE = OfflineRole(ErrorCode.NOT_LEADER_OR_FOLLOWER)
