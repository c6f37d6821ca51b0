"""Shell: `kafka-metadata-quorum`: describes the metadata quorum, and adds and removes its controllers."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.session import run_admin
from barnabas.core.errors import KafkaError, error_code
from barnabas.core.ids import METADATA_TOPIC, NO_TOPIC_ID, uuid_from_text, uuid_to_text

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin


def build_parser() -> Parser:
    parser = Parser("kafka-metadata-quorum", "Describe and change the metadata quorum.")
    parser.add_argument("command", choices=["describe", "add-controller", "remove-controller"])
    parser.add_argument("--status", action="store_true", help="a summary")
    parser.add_argument("--replication", "--re", action="store_true", help="every replica and its lag")
    parser.add_argument("--human-readable", "--hr", action="store_true", help="with --replication: times as 'ms ago'")
    parser.add_argument("--controller-id", "-i", type=int, help="remove-controller: its node id")
    parser.add_argument("--controller-directory-id", "-d", help="remove-controller: its directory id")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be done")
    parser.refuse("--bootstrap-controller", why="use --bootstrap-server with the address of a broker")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    if options.command == "add-controller":
        if options.command_config is None:
            parser.error("add-controller needs --command-config: server.properties of the controller to add")
        add_controller(options)
        return
    if options.command == "remove-controller":
        if options.controller_id is None or options.controller_directory_id is None:
            parser.error("remove-controller needs --controller-id and --controller-directory-id")
        remove_controller(options)
        return
    if options.status == options.replication:
        parser.error("describe needs one of --status and --replication")

    async def command(admin: AsyncAdmin) -> None:
        from barnabas.protocol.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

        topic = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
        response = await admin.cluster.send_any(DescribeQuorumRequest(topics=[topic]))
        quorum = response.topics[0].partitions[0] if response.topics else response
        code = response.error_code or quorum.error_code
        if code:
            raise KafkaError(error_code(code), quorum.error_message or response.error_message)
        if options.status:
            cluster_id = (await admin.describe_cluster()).cluster_id
            emit(status(quorum, str(cluster_id), {n.node_id: n for n in response.nodes}))
        else:
            for line in replication(quorum, options):
                emit(line)

    run_admin(options.bootstrap_server, command, client_settings(options))


def add_controller(options: argparse.Namespace) -> None:
    """Add the controller whose server.properties is the file of `--command-config`; the file gives its id, directory
    and listeners.
    """
    from barnabas.server.node.config import build_config, read_properties_file
    from barnabas.server.storage.directory.identity import read_meta_properties
    from barnabas.server.storage.fs import OsFileSystem

    async def command(admin: AsyncAdmin) -> None:
        config = build_config(read_properties_file(options.command_config))
        home = str(config["metadata.log.dir"] or config.log_dirs[0])
        meta = read_meta_properties(OsFileSystem(), home)
        if meta is None or meta.directory_id is None:
            raise ValueError(f"{home} has no directory.id yet: start the controller or format its directory first.")
        if not config.controller_advertised:
            raise ValueError(f"{options.command_config} contains no controller listener.")
        places = [(e.name, e.host, e.port) for e in config.controller_advertised]
        if not options.dry_run:
            await admin.add_raft_voter(meta.node_id, meta.directory_id, places)
        where = ", ".join(f"{name}://{host}:{port}" for name, host, port in places)
        done = "DRY RUN of adding" if options.dry_run else "Added"
        who = f"controller {meta.node_id} with directory id {uuid_to_text(meta.directory_id)}"
        emit(f"{done} {who} and endpoints: {where}")

    run_admin(options.bootstrap_server, command, {})


def remove_controller(options: argparse.Namespace) -> None:
    async def command(admin: AsyncAdmin) -> None:
        directory_id = uuid_from_text(options.controller_directory_id)
        if not options.dry_run:
            await admin.remove_raft_voter(options.controller_id, directory_id)
        done = "DRY RUN of removing" if options.dry_run else "Removed"
        emit(f"{done} KRaft controller {options.controller_id} with directory id {options.controller_directory_id}")

    run_admin(options.bootstrap_server, command, client_settings(options))


def status(quorum: Any, cluster_id: str, nodes: dict[int, Any]) -> str:
    """The summary of the quorum. MaxFollowerLag is the lag of the slowest voter."""
    leader = next((r for r in quorum.current_voters if r.replica_id == quorum.leader_id), None)
    lag = lag_ms = 0
    if leader is not None:
        slowest = min(quorum.current_voters, key=lambda r: r.log_end_offset)
        lag = leader.log_end_offset - slowest.log_end_offset
        lag_ms = max(0, leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp) if lag else 0
    rows = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": lag,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": _replicas(quorum.current_voters, nodes),
        "CurrentObservers": _replicas(quorum.observers, nodes),
    }
    return "\n".join(f"{name + ':':<24}{value}" for name, value in rows.items())


def _replicas(replicas: list[Any], nodes: dict[int, Any]) -> str:
    shown = []
    for replica in replicas:
        one: dict[str, object] = {"id": replica.replica_id}
        if replica.replica_directory_id != NO_TOPIC_ID:
            one["directoryId"] = uuid_to_text(replica.replica_directory_id)
        if (node := nodes.get(replica.replica_id)) and node.listeners:
            one["endpoints"] = [f"{at.name}://{at.host}:{at.port}" for at in node.listeners]
        shown.append(one)
    return json.dumps(shown)


def replication(quorum: Any, options: argparse.Namespace) -> list[str]:
    """One line for each replica, the leader first."""
    names = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status")
    end = max((r.log_end_offset for r in quorum.current_voters if r.replica_id == quorum.leader_id), default=0)
    rows = [names]
    kinds = [(r, "Leader" if r.replica_id == quorum.leader_id else "Follower") for r in quorum.current_voters]
    kinds.sort(key=lambda pair: pair[1] != "Leader")
    for replica, kind in [*kinds, *((r, "Observer") for r in quorum.observers)]:
        times = (replica.last_fetch_timestamp, replica.last_caught_up_timestamp)
        fetched, caught_up = (_ago(t) if options.human_readable else str(t) for t in times)
        rows.append(
            (
                str(replica.replica_id),
                uuid_to_text(replica.replica_directory_id),
                str(replica.log_end_offset),
                str(end - replica.log_end_offset),
                fetched,
                caught_up,
                kind,
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(names))]
    return ["\t".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + "\t" for row in rows]


def _ago(timestamp: int) -> str:
    return f"{int(time.time() * 1000) - timestamp} ms ago" if timestamp >= 0 else str(timestamp)
