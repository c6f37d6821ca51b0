"""Shell: `kafka-delete-records`: deletes the records below the offsets that a JSON file lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.session import run_admin
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin


def main() -> None:
    parser = Parser("kafka-delete-records", "Delete records down to a given offset.")
    parser.add_argument("--offset-json-file", required=True, metavar="FILE")
    options = parser.parse_args()
    try:
        rows = json.loads(Path(options.offset_json_file).read_text(encoding="utf-8"))["partitions"]
        before = {TopicPartition(r["topic"], int(r["partition"])): int(r["offset"]) for r in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(
            f"{options.offset_json_file}: {error}; expected "
            '{"partitions": [{"topic": "t", "partition": 0, "offset": 10}], "version": 1}'
        )

    async def command(admin: AsyncAdmin) -> None:
        emit("Executing records delete operation")
        results = await admin.delete_records(before)
        emit("Records delete operation completed:")
        for partition, result in sorted(results.items()):
            outcome = f"error: {result}" if isinstance(result, KafkaError) else f"low_watermark: {result}"
            emit(f"partition: {partition}\t{outcome}")

    run_admin(options.bootstrap_server, command, client_settings(options))
