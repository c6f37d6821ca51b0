"""Value: one row of the table of metrics, and the names that a metric has in each family of names.

Dashboards read metrics of Kafka by the names that an exporter gives to Kafka's MBeans, and there are several families
of such names. Strimzi's is the default; Confluent's can be chosen by `barnabas.metrics.names`. Both are derived from
the MBean. `kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec` for example is

    kafka_server_brokertopicmetrics_bytesin_total       in Strimzi's family
    kafka_server_brokertopicmetrics_bytesinpersec       in Confluent's family
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from msgspec import Struct


class NameFamily(Enum):
    """The values of `barnabas.metrics.names`."""

    STRIMZI = "strimzi"
    CONFLUENT = "confluent"


class MetricKind(Enum):
    """The type of a metric in the text for Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricRow(Struct, frozen=True):
    """One metric."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    mbean: str = ""
    """Kafka's MBean; empty if Kafka has no such metric."""
    source: str = ""
    """The package that measures the value."""
    confluent: str = ""
    """The name in Confluent's family; empty if it is `name`."""

    def name_in(self, family: NameFamily) -> str:
        """The name of the metric in a family of names."""
        return self.confluent if family is NameFamily.CONFLUENT and self.confluent else self.name


_MBEAN: Final = re.compile(r"kafka\.(?P<domain>[\w.]+):type=(?P<type>[\w-]+),name=(?P<name>\w+)")


def kafka(kind: MetricKind, mbean: str, help_text: str, source: str, *labels: str, suffix: str = "") -> MetricRow:
    """A row whose names are derived from the MBean, by the rules of both exporters. `suffix` is `_count` for the number
    of values of a histogram of Kafka."""
    match = _MBEAN.match(mbean)
    assert match is not None, mbean
    start = f"kafka_{match['domain'].replace('.', '_')}_{match['type']}_".lower()
    name = match["name"].lower()
    if name.endswith("persec"):
        strimzi = name.removesuffix("persec") + "_total"
    elif name.endswith("percent"):
        strimzi = name.removesuffix("percent") + "_percent"
    else:
        strimzi = name + suffix
    return MetricRow(start + strimzi, kind, help_text, labels, mbean, source, start + name)


def attribute(kind: MetricKind, mbean_type: str, name: str, help_text: str, source: str, *labels: str) -> MetricRow:
    """A row of an MBean whose attributes have names with hyphens, for example `raft-metrics`, `current-epoch`."""
    ending = name.replace("-", "_")
    return MetricRow(
        f"kafka_server_{mbean_type.lower().replace('-', '_').replace('raft_metrics', 'raftmetrics')}_{ending}",
        kind,
        help_text,
        labels,
        f"kafka.server:type={mbean_type} ({name})",
        source,
        f"kafka_server_{mbean_type.lower().replace('socket-server-metrics', 'socketservermetrics').replace('-', '_')}"
        f"_{ending}",
    )


def own(kind: MetricKind, name: str, help_text: str, source: str, *labels: str) -> MetricRow:
    """A row of a metric that only Barnabas has, or that has the name of another exporter than the two families."""
    return MetricRow(name, kind, help_text, labels, "", source)
