"""Shell: `kafka-dump-log`: reads segment and index files without a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from barnabas.cli import decoders
from barnabas.cli.kafka.arguments import Parser, emit
from barnabas.cli.log_dump import DumpOptions, dump_file
from barnabas.cli.output import fail
from barnabas.records.batch import Record


def main() -> None:
    parser = Parser("kafka-dump-log", "Dump segment and index files.", bootstrap=False)
    parser.add_argument("--files", required=True, help="a,b,c")
    parser.add_argument("--print-data-log", action="store_true")
    parser.add_argument("--deep-iteration", action="store_true")
    parser.add_argument("--skip-record-metadata", action="store_true")
    parser.add_argument("--max-bytes", type=int, default=1 << 62)
    parser.add_argument("--verify-index-only", action="store_true")
    parser.add_argument("--index-sanity-check", action="store_true")
    parser.add_argument("--cluster-metadata-decoder", action="store_true")
    parser.add_argument("--offsets-decoder", action="store_true")
    options = parser.parse_args()
    decode: Callable[[Record], str] | None = None
    if options.cluster_metadata_decoder:
        decode = decoders.metadata_record
    elif options.offsets_decoder:
        decode = decoders.offsets_record
    dump = DumpOptions(
        records=options.deep_iteration or options.print_data_log or decode is not None,
        payload=options.print_data_log,
        max_bytes=options.max_bytes,
        decode=decode,
    )
    try:
        for name in options.files.split(","):
            for line in dump_file(Path(name), dump):
                emit(line)
    except (OSError, ValueError) as error:
        fail(str(error))
