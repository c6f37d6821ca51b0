"""Value: what all replicas of one broker share: the broker's id, a clock, the flusher, dynamic limits, active brokers.

`Replication` creates the context and updates the limits when a broker config changes. `Partitions` updates
`active_brokers` from each image before it gives the partitions their roles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from barnabas.server.replication.ports import TieredReplicas
from barnabas.server.replication.rules.throttle import ReplicaThrottle
from barnabas.server.replication.traffic import Traffic
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.log import Log


class ReplicationContext(Struct):
    """What all replicas of one broker share. The functions are called on the event loop and
    return at once."""

    node_id: int
    now_ms: Callable[[], int]
    """Milliseconds of a monotonic clock; follower lag is measured with this clock."""
    flush: Callable[[Log], None]
    """Requests an fsync of everything that the log holds now. The caller does not wait for the fsync."""
    sync_created: Callable[[LogDir], None]
    """Requests a sync of the names and topic ids of the logs that were created in a directory. The caller does not
    wait."""
    replica_lag_time_max_ms: int
    leader_throttle: ReplicaThrottle
    """Limits what this broker serves to followers of throttled replicas (KIP-73)."""
    follower_throttle: ReplicaThrottle
    """Limits what this broker fetches for throttled replicas (KIP-73)."""
    active_brokers: Mapping[int, int]
    """Broker id -> broker epoch of every broker that is neither fenced nor shutting down in the newest image."""
    silence_max_ms: int | None = None
    """None while the active controller answers this broker's heartbeats, or has answered one within the broker's
    session. Otherwise a controller that runs has fenced this broker, and a leader that an in-sync follower has not
    fetched from for so long is cut off (`LeaderRole.is_cut_off`)."""
    traffic: Traffic = field(default_factory=Traffic)
    """Counts what the replicas append and read."""
    tiered: TieredReplicas | None = None
    """The object store, as far as replicas need it; None on a broker without tiered storage."""
