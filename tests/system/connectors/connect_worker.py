"""A Connect worker as a process of its own, with one connector class: `CopyTopic` copies a topic, exactly once.

    python -m tests.system.connectors.connect_worker WORKER.properties

The keys of `CopyTopic` are `topics`, `to` and `max.records`, the largest number of records in a micro-batch.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnabas.core.properties import parse_properties
from barnabas.core.telemetry.log import configure_logging
from barnabas.spark.connectors.connect.cluster.ports import ConfigDefinition, ConfigFinding, ConnectPlugin
from barnabas.spark.connectors.connect.cluster.values import ConnectorConfig, ConnectorKind
from barnabas.spark.connectors.connect.server import ConnectServer
from barnabas.spark.connectors.connect.spark_runtime import SparkConnectorRuntime
from barnabas.spark.connectors.connect.worker_config import parse_worker_config

KEYS = ("topics", "to")


class CopyPlan:
    """One query from a topic to a topic."""

    version = "1.0"
    queries = 1

    def __init__(self, servers: str, config: ConnectorConfig) -> None:
        self._servers = servers
        self._config = config

    @property
    def topics(self) -> Sequence[str]:
        return [self._config["topics"]]

    def start(self, number: int, spark: Any, location: str) -> Any:
        return (
            spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", self._servers)
            .option("subscribe", self._config["topics"])
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self._config.get("max.records", "1000"))
            .load()
            .select("value")
            .writeStream.format("barnabas")
            .option("kafka.bootstrap.servers", self._servers)
            .option("topic", self._config["to"])
            .option("checkpointLocation", location)
            .start()
        )


class CopyPlanner:
    """Knows the class `CopyTopic`."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def plugins(self) -> Sequence[ConnectPlugin]:
        return [ConnectPlugin("CopyTopic", "sink", "1.0")]

    def kind(self, config: ConnectorConfig) -> ConnectorKind:
        return ConnectorKind.SINK

    def definitions(self, plugin: str) -> Sequence[ConfigDefinition]:
        if plugin != "CopyTopic":
            raise LookupError(f"There is no plugin {plugin}.")
        return [ConfigDefinition(name, required=True) for name in KEYS]

    def findings(self, config: ConnectorConfig) -> Sequence[ConfigFinding]:
        definitions = self.definitions(config["connector.class"])
        return [
            ConfigFinding(
                definition.name,
                definition,
                config.get(definition.name),
                () if config.get(definition.name) else (f"{definition.name} is missing.",),
            )
            for definition in definitions
        ]

    def plan(self, config: ConnectorConfig) -> CopyPlan:
        return CopyPlan(self._servers, config)


def main() -> None:
    configure_logging()
    config = parse_worker_config(parse_properties(Path(sys.argv[1]).read_text()))
    planner = CopyPlanner(config.client["bootstrap.servers"])

    async def run() -> None:
        server = ConnectServer(config, SparkConnectorRuntime(config, planner))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
        await server.run(lambda ready: print(f"barnabas connect ready: {ready.url}", flush=True))

    asyncio.run(run())


if __name__ == "__main__":
    main()
