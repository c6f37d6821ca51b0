"""Shell: `kafka-dump-log`: prints segment and index files without a broker."""

from __future__ import annotations

from pathlib import Path

from barnabas.cli.kafka.arguments import Parser, emit
from barnabas.cli.logs.decoders import DECODERS
from barnabas.cli.logs.dump import DumpOptions, dump_file
from barnabas.cli.output import fail

_DECODERS = {
    "cluster_metadata_decoder": "__cluster_metadata",
    "offsets_decoder": "__consumer_offsets",
    "transaction_log_decoder": "__transaction_state",
    "share_group_state_decoder": "__share_group_state",
    "remote_log_metadata_decoder": "__remote_log_metadata",
}


def build_parser() -> Parser:
    parser = Parser("kafka-dump-log", "Dump segment, index and snapshot files.", bootstrap=False)
    parser.add_argument("--files", required=True, help="a,b,c")
    parser.add_argument("--print-data-log", action="store_true", help="print keys and values")
    parser.add_argument("--deep-iteration", action="store_true", help="print every record, not only the batches")
    parser.add_argument("--skip-record-metadata", action="store_true", help="print only keys and values")
    parser.add_argument("--max-bytes", type=int, default=1 << 62)
    parser.add_argument(
        "--max-message-size", type=int, help=("accepted and ignored; the length in the batch header is checked")
    )
    parser.add_argument("--verify-index-only", action="store_true", help="print only the errors of an index")
    parser.add_argument("--index-sanity-check", action="store_true", help="the same, one line per file")
    decoders = parser.add_mutually_exclusive_group()
    for name in _DECODERS:
        decoders.add_argument(f"--{name.replace('_', '-')}", action="store_true")
    parser.refuse("--key-decoder-class", why="Java classes cannot be loaded")
    parser.refuse("--value-decoder-class", why="Java classes cannot be loaded")
    return parser


def main() -> None:
    options = build_parser().parse_args()
    decode = next((DECODERS[topic] for name, topic in _DECODERS.items() if getattr(options, name)), None)
    dump = DumpOptions(
        records=options.deep_iteration or options.print_data_log or decode is not None,
        payload=options.print_data_log,
        max_bytes=options.max_bytes,
        decode=decode,
        metadata=not options.skip_record_metadata,
        index_only=options.verify_index_only or options.index_sanity_check,
    )
    try:
        for name in options.files.split(","):
            lines = 0
            for line in dump_file(Path(name.strip()), dump):
                emit(line)
                lines += 1
            if options.index_sanity_check and lines == 1:
                emit(f"{name} passed sanity check.")
    except (OSError, ValueError) as error:
        fail(str(error))
