"""Value: the names of the consume-transform-produce loop (`barnabas.client.stream`).

from barnabas.stream import ConsumerRecord, ProducerRecord, exactly_once
"""

from barnabas.client.interceptors import ProducerRecord
from barnabas.client.stream import Stream, exactly_once
from barnabas.client.values import ConsumerRecord

__all__ = ["ConsumerRecord", "ProducerRecord", "Stream", "exactly_once"]
