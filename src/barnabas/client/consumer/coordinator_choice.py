"""Shell: chooses the coordinator class by `group.protocol`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.classic_coordinator import ClassicCoordinator
from barnabas.client.consumer.consumer_coordinator import ConsumerProtocolCoordinator
from barnabas.client.consumer.coordinator import ConsumerCoordinator, GroupTiming
from barnabas.client.consumer.subscription import SubscriptionState
from barnabas.client.membership.classic import ClassicMember, MembershipConfig
from barnabas.client.membership.consumer_protocol import ConsumerMember
from barnabas.client.membership.subscriptions import build_assignors
from barnabas.client.options import Settings
from barnabas.core.ids import uuid_to_text
from barnabas.core.rng import random_uuid
from barnabas.protocol.assign.member import Assignor


def make_coordinator(
    cluster: Cluster,
    subscription: SubscriptionState,
    group_id: str,
    settings: Settings,
    assignors: Sequence[Assignor] | None,
    *,
    wake: Callable[[], None],
    before_revoke: Callable[[], Any],
) -> ConsumerCoordinator:
    """A member of `group_id` with the consumer's configs, not joined yet. Raises ConfigError."""
    options = MembershipConfig(
        group_id,
        settings["group.instance.id"],
        settings["session.timeout.ms"],
        settings["max.poll.interval.ms"],
        settings["client.rack"] or None,
    )
    timing = GroupTiming(
        settings["heartbeat.interval.ms"], settings["max.poll.interval.ms"], settings["exclude.internal.topics"]
    )
    if settings["group.protocol"].lower() == "consumer":
        member_id = uuid_to_text(random_uuid(cluster.rng))
        member = ConsumerMember(options, member_id, assignor=settings["group.remote.assignor"])
        return ConsumerProtocolCoordinator(
            cluster, subscription, member, timing, wake=wake, before_revoke=before_revoke
        )
    classic = ClassicMember(options, assignors or build_assignors(settings["partition.assignment.strategy"]))
    return ClassicCoordinator(cluster, subscription, classic, timing, wake=wake, before_revoke=before_revoke)
