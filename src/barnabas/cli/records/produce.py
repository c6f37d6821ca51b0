"""Shell: `barnabas produce`: writes the lines of standard input or of a file as records."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.completing import topics as complete_topics
from barnabas.cli.options import Bootstrap, CommandConfig
from barnabas.cli.output import EXIT_USAGE, fail, note, size_text
from barnabas.cli.records.line_format import LineReader, unescape
from barnabas.cli.records.producing import EncodingReader, RecordLineReader, WrittenLines, produce_lines, stdin
from barnabas.cli.records.registries import RegistryUrl, open_documents, open_encoder
from barnabas.cli.session import DEFAULT_BOOTSTRAP, parse_settings, read_properties, run, with_bootstrap
from barnabas.client.explanations.words import counted, rate
from barnabas.protocol.records.compression import PRODUCER_COMPRESSION_TYPES


def produce(
    topic: Annotated[str, typer.Argument(help="The topic to write to.", autocompletion=complete_topics)],
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read this file instead of stdin.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help=r"Lines are KEY<separator>VALUE, e.g. -k : or -k '\t'.")
    ] = None,
    headers: Annotated[bool, typer.Option("--headers", help="Lines begin with name:value,name:value<TAB>.")] = False,
    null: Annotated[
        str | None, typer.Option("--null", help="This text stands for null (as a value: a tombstone).")
    ] = None,
    encode: Annotated[
        bool, typer.Option("--encode", "-E", help="Values are JSON, encoded by the newest schema of TOPIC-value.")
    ] = False,
    encode_key: Annotated[
        bool, typer.Option("--encode-key", help="Keys are JSON, encoded by the newest schema of TOPIC-key.")
    ] = False,
    registry: RegistryUrl = None,
    compression: Annotated[str, typer.Option(help=f"One of {', '.join(PRODUCER_COMPRESSION_TYPES)}.")] = "none",
    acks: Annotated[str, typer.Option(help="all, 1 or 0.")] = "all",
    setting: Annotated[list[str] | None, typer.Option("--setting", "-X", help="Producer setting name=value.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Write each line of standard input (or of a file) as a record.

    Example: `echo 'k1:hello' | barnabas produce greetings --key-separator :`

    With `--encode` the values are written by a schema: `barnabas schemas register orders-value order.avsc`, then
    `echo '{"id": 1}' | barnabas produce orders --encode`.
    """
    lines = LineReader(
        parse_key=key_separator is not None,
        key_separator=unescape(key_separator or "\t"),
        parse_headers=headers,
        null_marker=null,
    )
    if encode_key and key_separator is None:
        fail("--encode-key needs --key-separator: the lines have no keys", EXIT_USAGE)
    settings: dict[str, object] = {
        "compression.type": compression,
        "acks": acks,
        **with_bootstrap(bootstrap_server, read_properties(command_config)),
        **parse_settings(setting),
    }
    if file is not None and not file.is_file():
        fail(f"{file}: no such file", EXIT_USAGE)
    if file is None and sys.stdin.isatty():
        note(f"each line becomes a record of {topic}; Ctrl-D ends the input")
    close = None
    reader: RecordLineReader = lines
    if encode or encode_key:
        documents, close = open_documents(registry, command_config)
        reader = EncodingReader(lines, open_encoder(documents, topic, keys=encode_key, values=encode))
    began = time.monotonic()
    try:
        written = _run(settings, topic, file, reader)
    finally:
        if close is not None:
            close()
    seconds = max(time.monotonic() - began, 1e-9)
    note(f"{counted(written.count, 'record')}, {size_text(written.size_bytes)}, {rate(written.count, seconds)}")
    for partition, (first, last) in sorted(written.offsets.items()):
        note(f"  partition {partition}, {f'offset {first}' if first == last else f'offsets {first} to {last}'}")


def _run(settings: dict[str, object], topic: str, file: Path | None, reader: RecordLineReader) -> WrittenLines:
    source = file.open("rb") if file else stdin()
    with source:
        if not sys.stderr.isatty():
            return run(lambda: produce_lines(settings, topic, source, reader))
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as progress:
            return run(lambda: produce_lines(settings, topic, source, reader, progress=progress))
