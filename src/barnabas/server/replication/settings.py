"""Value: the broker settings that copying obeys."""

from __future__ import annotations

from msgspec import Struct, field

from barnabas.server.replication.ports import FetchLimits
from barnabas.server.replication.rules.throttle import UNLIMITED


class ReplicationSettings(Struct, frozen=True):
    """As they are now: `num.replica.fetchers` and the rates are dynamic."""

    fetch: FetchLimits = field(default_factory=FetchLimits)
    fetchers: int = 1
    """num.replica.fetchers, for each leader"""
    replica_lag_time_max_ms: int = 30_000
    leader_rate: int = UNLIMITED
    """leader.replication.throttled.rate"""
    follower_rate: int = UNLIMITED
    """follower.replication.throttled.rate"""
    movers: int | None = None
    """num.replica.alter.log.dirs.threads; one for each directory when unset"""
    move_rate: int = UNLIMITED
    """replica.alter.log.dirs.io.max.bytes.per.second"""
