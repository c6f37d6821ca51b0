"""Barnabas: a Kafka-wire-compatible distributed commit log, and data pipelines on Spark.

Importing this package is cheap; each subpackage is imported when it is first used.

    from barnabas import Producer, Consumer, Admin                 # blocking
    from barnabas import AsyncProducer, AsyncConsumer, AsyncAdmin  # asyncio
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from barnabas.core.version import VERSION

if TYPE_CHECKING:
    from barnabas.client import AcknowledgeType as AcknowledgeType
    from barnabas.client import Admin as Admin
    from barnabas.client import AsyncAdmin as AsyncAdmin
    from barnabas.client import AsyncConsumer as AsyncConsumer
    from barnabas.client import AsyncProducer as AsyncProducer
    from barnabas.client import AsyncShareConsumer as AsyncShareConsumer
    from barnabas.client import Consumer as Consumer
    from barnabas.client import Producer as Producer
    from barnabas.client import RebalanceListener as RebalanceListener
    from barnabas.client import ShareConsumer as ShareConsumer
    from barnabas.client import SubscriptionPattern as SubscriptionPattern
    from barnabas.core.errors import BarnabasError as BarnabasError
    from barnabas.core.errors import ErrorCode as ErrorCode
    from barnabas.core.errors import KafkaError as KafkaError
    from barnabas.core.ids import TopicPartition as TopicPartition

__version__ = VERSION

_HOMES = {
    "AcknowledgeType": "barnabas.client",
    "Admin": "barnabas.client",
    "AsyncAdmin": "barnabas.client",
    "AsyncConsumer": "barnabas.client",
    "AsyncProducer": "barnabas.client",
    "AsyncShareConsumer": "barnabas.client",
    "BarnabasError": "barnabas.core.errors",
    "Consumer": "barnabas.client",
    "ErrorCode": "barnabas.core.errors",
    "KafkaError": "barnabas.core.errors",
    "Producer": "barnabas.client",
    "RebalanceListener": "barnabas.client",
    "ShareConsumer": "barnabas.client",
    "SubscriptionPattern": "barnabas.client",
    "TopicPartition": "barnabas.core.ids",
}
__all__ = [
    "AcknowledgeType",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
    "BarnabasError",
    "Consumer",
    "ErrorCode",
    "KafkaError",
    "Producer",
    "RebalanceListener",
    "ShareConsumer",
    "SubscriptionPattern",
    "TopicPartition",
    "__version__",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
