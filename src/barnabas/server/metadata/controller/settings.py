"""Value: the inputs of a decision besides the image: the node's static configuration and the context of the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from barnabas.core.reprs import repr_without
from barnabas.core.rng import Rng

MAX_PARTITIONS_PER_BATCH = 10_000
"""The most partitions one CreateTopics or CreatePartitions request may make (ReplicationControlManager)."""


Charge = Callable[[int], bool]
"""Accounts for partitions that a request creates or deletes. Returns False if the quota of its client is used up; then
the request must not create or delete them."""


def unlimited(partitions: int) -> bool:
    """The `Charge` of a request without a quota."""
    return True


class ControllerConfig(Struct, frozen=True):
    """The static configuration. `static_config` has the configs of server.properties and of the command line, as
    text."""

    node_id: int
    static_config: Mapping[str, str]
    default_replication_factor: int
    num_partitions: int
    delete_topic_enable: bool
    broker_session_timeout_ms: int
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    unclean_leader_election_interval_ms: int
    barnabas_broker_probe_enable: bool
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    delegation_token_secret_key: str | None
    """Equal on all nodes; without it the cluster has no delegation tokens."""
    delegation_token_max_lifetime_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_expiry_check_interval_ms: int

    __repr__ = repr_without("static_config", "delegation_token_secret_key")


class DecideContext(Struct, frozen=True):
    """The time and randomness for one decision, and the version of its request."""

    now_ms: int
    rng: Rng
    settings: ControllerConfig
    version: int = 0
    live_brokers: frozenset[int] = frozenset()
    """The brokers whose sessions are valid (`BrokerSessions.live`). No other process may register with such an id."""
    may_stop: Callable[[int], bool] = lambda _: True
    """Whether a broker in controlled shutdown may stop: all other active brokers have read the records that moved its
    leaderships to them (`BrokerSessions.may_stop`). The argument is the id of the stopping broker."""
    charge: Charge = unlimited
    kraft_version: int | None = None
    """The kraft.version of the quorum; None without a quorum (ZooKeeper)."""
