"""Shell: `kafka-run-class`: runs the tool that a class of Kafka stands for, for scripts that name the class."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

from barnabas.cli.kafka.arguments import Parser

_MODULES: Final = {
    "AclCommand": "settings.acls",
    "BrokerApiVersionsCommand": "cluster.broker_api_versions",
    "ClientMetricsCommand": "settings.client_metrics",
    "ClusterTool": "cluster.cluster",
    "ConfigCommand": "settings.configs",
    "ConnectDistributed": "connect.connect_distributed",
    "ConnectPluginPath": "connect.connect_plugin_path",
    "ConnectStandalone": "connect.connect_standalone",
    "ConsoleConsumer": "records.console_consumer",
    "ConsoleProducer": "records.console_producer",
    "ConsoleShareConsumer": "records.console_share_consumer",
    "ConsumerGroupCommand": "groups.consumer_groups",
    "ConsumerPerformance": "records.consumer_perf_test",
    "DelegationTokenCommand": "settings.delegation_tokens",
    "DeleteRecordsCommand": "records.delete_records",
    "DumpLogSegments": "cluster.dump_log",
    "EndToEndLatency": "records.e2e_latency",
    "FeatureCommand": "cluster.features",
    "GetOffsetShell": "records.get_offsets",
    "GroupsCommand": "groups.groups",
    "Kafka": "cluster.server_start",
    "LeaderElectionCommand": "cluster.leader_election",
    "LogDirsCommand": "cluster.log_dirs",
    "MetadataQuorumCommand": "cluster.metadata_quorum",
    "MetadataShell": "cluster.metadata_shell",
    "MirrorMaker": "connect.mirror_maker",
    "ProducerPerformance": "records.producer_perf_test",
    "ReassignPartitionsCommand": "cluster.reassign_partitions",
    "ReplicaVerificationTool": "cluster.replica_verification",
    "ShareConsumerPerformance": "records.share_consumer_perf_test",
    "ShareGroupCommand": "groups.share_groups",
    "StorageTool": "cluster.storage",
    "StreamsResetter": "groups.streams_application_reset",
    "TopicCommand": "topics",
    "TransactionsCommand": "groups.transactions",
    "VerifiableConsumer": "records.verifiable_consumer",
    "VerifiableProducer": "records.verifiable_producer",
    "VerifiableShareConsumer": "records.verifiable_share_consumer",
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
