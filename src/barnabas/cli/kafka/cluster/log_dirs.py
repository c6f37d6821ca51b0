"""Shell: `kafka-log-dirs`: prints sizes and lags of replicas as one line of JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.session import run_admin
from barnabas.core.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin


def main() -> None:
    parser = Parser("kafka-log-dirs", "Query log directory usage on the specified brokers.")
    parser.add_argument("--describe", action="store_true", required=True)
    parser.add_argument("--topic-list", help="a,b")
    parser.add_argument("--broker-list", help="0,1")
    options = parser.parse_args()
    topics = set(options.topic_list.split(",")) if options.topic_list else None
    brokers = [int(b) for b in options.broker_list.split(",")] if options.broker_list else None

    async def command(admin: AsyncAdmin) -> None:
        emit("Querying brokers for log directories information")
        found = await admin.describe_log_dirs(brokers)
        emit(f"Received log directory information from brokers {','.join(str(b) for b in sorted(found))}")
        described = []
        for broker in sorted(found):
            dirs: list[dict[str, object]] = []
            for path, log_dir in found[broker].items():
                if isinstance(log_dir, KafkaError):
                    dirs.append({"partitions": [], "error": str(log_dir), "logDir": path})
                    continue
                partitions = [
                    {"partition": str(p), "size": r.size_bytes, "offsetLag": r.offset_lag, "isFuture": r.is_future}
                    for p, r in sorted(log_dir.replicas.items())
                    if topics is None or p.topic in topics
                ]
                dirs.append({"partitions": partitions, "error": None, "logDir": path})
            described.append({"broker": broker, "logDirs": dirs})
        emit(json.dumps({"version": 1, "brokers": described}, separators=(",", ":")))

    run_admin(options.bootstrap_server, command, client_settings(options))
