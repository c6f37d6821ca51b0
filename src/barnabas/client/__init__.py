"""The clients for any Kafka cluster: producer, consumer, share consumer and admin. An asyncio core and a blocking
facade.

The names below are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin as AsyncAdmin
    from barnabas.client.blocking import Admin as Admin
    from barnabas.client.blocking import Consumer as Consumer
    from barnabas.client.blocking import ShareConsumer as ShareConsumer
    from barnabas.client.blocking_producer import Producer as Producer
    from barnabas.client.cluster.cluster import Cluster as Cluster
    from barnabas.client.consumer.consumer import AsyncConsumer as AsyncConsumer
    from barnabas.client.consumer.coordinator import RebalanceListener as RebalanceListener
    from barnabas.client.options import ClusterConfig as ClusterConfig
    from barnabas.client.partition_reader import OffsetRange as OffsetRange
    from barnabas.client.partition_reader import PartitionReader as PartitionReader
    from barnabas.client.producer.producer import AsyncProducer as AsyncProducer
    from barnabas.client.share.consumer import AsyncShareConsumer as AsyncShareConsumer
    from barnabas.client.share.session import AcknowledgeType as AcknowledgeType
    from barnabas.client.typed_settings import AdminSettings as AdminSettings
    from barnabas.client.typed_settings import ConsumerSettings as ConsumerSettings
    from barnabas.client.typed_settings import ProducerSettings as ProducerSettings
    from barnabas.client.values import SubscriptionPattern as SubscriptionPattern

_HOMES = {
    "AsyncAdmin": "admin",
    "AsyncConsumer": "consumer.consumer",
    "AsyncProducer": "producer.producer",
    "Admin": "blocking",
    "Consumer": "blocking",
    "Producer": "blocking_producer",
    "Cluster": "cluster.cluster",
    "ClusterConfig": "options",
    "OffsetRange": "partition_reader",
    "PartitionReader": "partition_reader",
    "RebalanceListener": "consumer.coordinator",
    "AcknowledgeType": "share.session",
    "AsyncShareConsumer": "share.consumer",
    "ShareConsumer": "blocking",
    "SubscriptionPattern": "values",
    "AdminSettings": "typed_settings",
    "ConsumerSettings": "typed_settings",
    "ProducerSettings": "typed_settings",
}
__all__ = [
    "AcknowledgeType",
    "Admin",
    "AdminSettings",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
    "Cluster",
    "ClusterConfig",
    "Consumer",
    "ConsumerSettings",
    "OffsetRange",
    "PartitionReader",
    "Producer",
    "ProducerSettings",
    "RebalanceListener",
    "ShareConsumer",
    "SubscriptionPattern",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
