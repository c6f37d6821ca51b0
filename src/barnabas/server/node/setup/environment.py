"""Codec: environment variables -> settings of a node, by the rule of Apache Kafka's container images.

    KAFKA_LOG_RETENTION_HOURS=24                  log.retention.hours=24
    KAFKA_LISTENER_NAME_CLIENTS_SASL__X=1         listener.name.clients.sasl_x=1
    KAFKA_LISTENER_NAME_MY___LISTENER_Y=1         listener.name.my-listener.y=1

One underscore stands for a dot, two for an underscore, three for a dash; letters become small. Variables that Kafka's
scripts read, such as KAFKA_OPTS and KAFKA_HEAP_OPTS, are no settings. The authority is KafkaDockerWrapper of Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

PREFIX: Final = "KAFKA_"
CLUSTER_ID: Final = "CLUSTER_ID"
"""The variable with the id of a new cluster."""
_OF_SCRIPTS: Final = frozenset(
    {
        "KAFKA_DEBUG", "KAFKA_GC_LOG_OPTS", "KAFKA_HEAP_OPTS", "KAFKA_HOME", "KAFKA_JMX_HOSTNAME", "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_LOG4J_LOGGERS", "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_OPTS", "KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_VERSION",
    }
)  # fmt: skip
_SIGNS: Final = {1: ".", 2: "_", 3: "-"}


def settings_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings that the environment contains. Raises ValueError for a name with four underscores in a row."""
    found = {}
    for variable, text in sorted(environment.items()):
        if variable.startswith(PREFIX) and variable not in _OF_SCRIPTS and len(variable) > len(PREFIX):
            found[_setting_name(variable)] = text
    return found


def _setting_name(variable: str) -> str:
    def sign(match: re.Match[str]) -> str:
        count = len(match[0])
        if count not in _SIGNS:
            raise ValueError(
                f"The environment variable {variable} has {count} underscores in a row. One stands for a dot, two for "
                "an underscore, three for a dash."
            )
        return _SIGNS[count]

    return re.sub("_+", sign, variable.removeprefix(PREFIX).lower())
