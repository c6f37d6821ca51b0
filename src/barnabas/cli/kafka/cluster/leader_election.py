"""Shell: `kafka-leader-election`: elects preferred replicas as leaders, or (unclean) any remaining replica."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.session import run_admin
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin


def build_parser() -> Parser:
    parser = Parser("kafka-leader-election", "Elect leaders of partitions.")
    parser.add_argument("--election-type", required=True, choices=["PREFERRED", "UNCLEAN"], type=str.upper)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", metavar="TOPIC", help="with --partition")
    which.add_argument("--all-topic-partitions", action="store_true")
    which.add_argument("--path-to-json-file", metavar="FILE", help='{"partitions": [{"topic": "a", "partition": 0}]}')
    parser.add_argument("--partition", type=int, help="with --topic")
    parser.add_argument("--admin.config", dest="command_config", metavar="FILE", help="the same as --command-config")
    parser.refuse("--bootstrap-controller", why="use --bootstrap-server with the address of a broker")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    if (options.topic is None) != (options.partition is None):
        parser.error("--topic and --partition go together")
    partitions = None
    if options.topic is not None:
        partitions = [TopicPartition(options.topic, options.partition)]
    elif options.path_to_json_file is not None:
        try:
            rows = json.loads(Path(options.path_to_json_file).read_text(encoding="utf-8"))["partitions"]
            partitions = [TopicPartition(row["topic"], int(row["partition"])) for row in rows]
        except (OSError, ValueError, KeyError, TypeError) as error:
            parser.error(f"{options.path_to_json_file} does not list partitions: {error}")

    async def command(admin: AsyncAdmin) -> None:
        await elect(admin, options.election_type, partitions)

    run_admin(options.bootstrap_server, command, client_settings(options))


async def elect(admin: AsyncAdmin, kind: str, partitions: list[TopicPartition] | None) -> None:
    """Run the elections and print all results. Raises the first error afterwards."""
    from barnabas.client.admin.elections import ElectionType

    results = await admin.elect_leaders(partitions, ElectionType[kind])
    done = sorted(tp for tp, error in results.items() if error is None)
    needless = sorted(tp for tp, e in results.items() if e is not None and e.code is ErrorCode.ELECTION_NOT_NEEDED)
    failed = {tp: e for tp, e in sorted(results.items()) if e is not None and tp not in needless}
    if done:
        emit(f"Successfully completed leader election ({kind}) for partitions {', '.join(map(str, done))}")
    if needless:
        emit(f"Valid replica already elected for partitions {', '.join(map(str, needless))}")
    for tp, error in failed.items():
        emit(f"Error completing leader election ({kind}) for partition: {tp}: {error.code.name}: {error}")
    for error in failed.values():
        raise error
