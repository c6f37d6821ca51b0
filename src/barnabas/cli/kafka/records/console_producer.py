"""Shell: `kafka-console-producer`: writes each line of standard input as a record."""

from __future__ import annotations

from barnabas.cli.kafka.arguments import Parser, client_settings, split_pairs
from barnabas.cli.records.line_format import LineReader
from barnabas.cli.records.producing import produce_lines, stdin
from barnabas.cli.session import read_properties, run

_FLAGS = {
    "timeout": "linger.ms",
    "request_timeout_ms": "request.timeout.ms",
    "message_send_max_retries": "retries",
    "retry_backoff_ms": "retry.backoff.ms",
    "batch_size": "batch.size",
    "max_partition_memory_bytes": "batch.size",
    "max_memory_bytes": "buffer.memory",
    "max_block_ms": "max.block.ms",
    "request_required_acks": "acks",
    "compression_codec": "compression.type",
    "metadata_expiry_ms": "metadata.max.age.ms",
    "socket_buffer_size": "send.buffer.bytes",
}


def main() -> None:
    parser = Parser("kafka-console-producer", "Write lines of standard input to a topic.")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--sync", action="store_true", help="accepted; the tool waits for all records at the end")
    parser.add_argument("--compression-codec", nargs="?", const="gzip")
    parser.add_argument("--reader-property", "--property", action="append", dest="reader_property")
    parser.add_argument("--reader-config", help="a .properties file of reader properties")
    parser.add_argument("--producer-property", "--command-property", action="append", dest="producer_property")
    parser.add_argument("--producer.config", "--producer-config", dest="producer_config")
    parser.add_argument("--line-reader", metavar="CLASS")
    for flag in _FLAGS:
        if flag != "compression_codec":
            parser.add_argument(f"--{flag.replace('_', '-')}")
    options = parser.parse_args()
    if options.line_reader and not options.line_reader.endswith("LineMessageReader"):
        parser.error(f"--line-reader {options.line_reader}: Java classes cannot be loaded")
    properties = {name: str(value) for name, value in read_properties(options.reader_config).items()}
    properties.update(split_pairs(options.reader_property, parser, strip=False))
    try:
        reader = LineReader.from_properties(properties)
    except ValueError as error:
        parser.error(str(error))
    settings = client_settings(options) | read_properties(options.producer_config)
    settings |= {name: getattr(options, flag) for flag, name in _FLAGS.items() if getattr(options, flag) is not None}
    settings |= split_pairs(options.producer_property, parser)
    settings["bootstrap.servers"] = options.bootstrap_server
    run(lambda: produce_lines(settings, options.topic, stdin(), reader))
