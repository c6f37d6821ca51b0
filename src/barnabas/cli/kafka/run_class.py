"""Shell: `kafka-run-class`: runs the tool that a class of Kafka stands for, for scripts that name the class."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

from barnabas.cli.kafka.arguments import Parser

_MODULES: Final = {
    "AclCommand": "acls",
    "BrokerApiVersionsCommand": "broker_api_versions",
    "ClientMetricsCommand": "client_metrics",
    "ClusterTool": "cluster",
    "ConfigCommand": "configs",
    "ConnectDistributed": "connect_distributed",
    "ConnectPluginPath": "connect_plugin_path",
    "ConnectStandalone": "connect_standalone",
    "ConsoleConsumer": "console_consumer",
    "ConsoleProducer": "console_producer",
    "ConsoleShareConsumer": "console_share_consumer",
    "ConsumerGroupCommand": "consumer_groups",
    "ConsumerPerformance": "consumer_perf_test",
    "DelegationTokenCommand": "delegation_tokens",
    "DeleteRecordsCommand": "delete_records",
    "DumpLogSegments": "dump_log",
    "EndToEndLatency": "e2e_latency",
    "FeatureCommand": "features",
    "GetOffsetShell": "get_offsets",
    "GroupsCommand": "groups",
    "Kafka": "server_start",
    "LeaderElectionCommand": "leader_election",
    "LogDirsCommand": "log_dirs",
    "MetadataQuorumCommand": "metadata_quorum",
    "MetadataShell": "metadata_shell",
    "MirrorMaker": "mirror_maker",
    "ProducerPerformance": "producer_perf_test",
    "ReassignPartitionsCommand": "reassign_partitions",
    "ReplicaVerificationTool": "replica_verification",
    "ShareConsumerPerformance": "share_consumer_perf_test",
    "ShareGroupCommand": "share_groups",
    "StorageTool": "storage",
    "StreamsResetter": "streams_application_reset",
    "TopicCommand": "topics",
    "TransactionsCommand": "transactions",
    "VerifiableConsumer": "verifiable_consumer",
    "VerifiableProducer": "verifiable_producer",
    "VerifiableShareConsumer": "verifiable_share_consumer",
}
"""The modules of this package by the class of Kafka's tool. Kafka has moved classes between packages, for example
`kafka.tools.GetOffsetShell` to `org.apache.kafka.tools.GetOffsetShell`, so the package does not matter.
"""
_PACKAGES: Final = ("kafka.", "org.apache.kafka.")


def main() -> None:
    parser = Parser(
        "kafka-run-class",
        "Run the tool that a class of Kafka stands for, such as org.apache.kafka.tools.GetOffsetShell, with its "
        f"arguments. Known classes: {', '.join(_MODULES)}.",
        bootstrap=False,
    )
    parser.refuse("-daemon", "-name", "-loggc", why="it is for the JVM; run the tool in the background by your shell")
    parser.add_argument("class_name", metavar="CLASS")
    options = parser.parse_args(sys.argv[1:2])
    name: str = options.class_name
    module = _MODULES.get(name.rpartition(".")[2]) if name.startswith(_PACKAGES) else None
    if module is None:
        parser.error(f"{name} is not a class of a known tool; Java classes cannot be loaded (see --help)")
    sys.argv = [name, *sys.argv[2:]]
    import_module(f"barnabas.cli.kafka.{module}").main()
