"""Shell: `barnabas consume`: prints the records of a topic as lines on standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from barnabas.cli.completing import groups as complete_groups
from barnabas.cli.completing import topics as complete_topics
from barnabas.cli.options import Bootstrap, CommandConfig
from barnabas.cli.output import EXIT_INTERRUPTED, EXIT_USAGE, discard_stdout, fail, note, size_text
from barnabas.cli.records.registries import RecordDecoder, RegistryUrl, open_documents
from barnabas.cli.session import DEFAULT_BOOTSTRAP, parse_settings, read_properties, run, with_bootstrap
from barnabas.client.explanations.words import counted, rate

if TYPE_CHECKING:
    from barnabas.cli.records.consuming import ConsumePlan, ConsumeProgress

Format = Callable[[Iterable[Any]], bytes]


def consume(
    topic: Annotated[str, typer.Argument(help="The topic to read.", autocompletion=complete_topics)],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", "-B", help="Start at the first record (a group: if it has no offsets).")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", help="Read as a member of this group, and commit offsets.", autocompletion=complete_groups
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only these partitions; repeatable.")
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option("--offset", "-o", help="earliest, latest, N, -N (before the end), a time, or PT1H ago."),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after this many records.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Stop at the present end of the partitions.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, help="Stop if no record arrives for this many seconds.")
    ] = None,
    key: Annotated[bool, typer.Option("--key", "-k", help="Show keys before values.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Show headers.")] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Show timestamps.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Show partitions and offsets.")] = False,
    separator: Annotated[str, typer.Option("--separator", help="Separates the parts of a record.")] = r"\t",
    json: Annotated[bool, typer.Option("--json", help="Print each record as a line of JSON.")] = False,
    template: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="Fields in braces: {topic} {partition} {offset} {timestamp} {time} {key} {value} {headers}.",
        ),
    ] = None,
    decode: Annotated[
        bool, typer.Option("--decode", "-D", help="Show keys and values that name a schema of the registry as JSON.")
    ] = False,
    registry: RegistryUrl = None,
    isolation_level: Annotated[
        str, typer.Option("--isolation-level", help="read_committed hides records of open and aborted transactions.")
    ] = "read_uncommitted",
    setting: Annotated[list[str] | None, typer.Option("--setting", "-X", help="Consumer setting name=value.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Print the records of a topic, one per line, as they arrive. Ctrl-C stops the command.

    Example: `barnabas consume orders --from-beginning --until-end --format '{partition}:{offset} {key}={value}'`

    Without `--group`, the command commits no offsets, so it can be repeated. `--decode` needs a schema registry.
    """
    from barnabas.cli.records.consuming import ConsumePlan, Start, reset_policy

    if group is not None and (partition or offset is not None):
        fail(
            (
                "a group's coordinator assigns partitions and stores offsets; set them with "
                "`barnabas groups reset-offsets`"
            ),
            EXIT_USAGE,
        )
    if from_beginning and offset is not None:
        fail("--from-beginning and --offset exclude each other; give one of them", EXIT_USAGE)
    if isolation_level not in ("read_committed", "read_uncommitted"):
        fail(f"--isolation-level must be read_committed or read_uncommitted, not {isolation_level!r}", EXIT_USAGE)
    try:
        # With --until-end and no other position, reading starts at the beginning.
        default = "earliest" if from_beginning or until_end else "latest"
        start = Start.parse(offset or default)
        form = _format(json=json, template=template, show=(timestamps, offsets, headers, key), separator=separator)
    except ValueError as error:
        fail(str(error), EXIT_USAGE)
    settings: dict[str, object] = {
        "isolation.level": isolation_level,
        "auto.offset.reset": reset_policy(start),
        "allow.auto.create.topics": "false",
        **({"group.id": group} if group is not None else {}),
        **with_bootstrap(bootstrap_server, read_properties(command_config)),
        **parse_settings(setting),
    }
    plan = ConsumePlan(
        topic=topic,
        partitions=tuple(dict.fromkeys(partition or ())),
        start=start,
        group=group is not None,
        until_end=until_end,
        records_max=max_messages,
        idle_ms=None if timeout is None else timeout * 1000,
    )
    if decode:
        documents, close = open_documents(registry, command_config)
        decoder = RecordDecoder(documents)
        try:
            outcome, seconds = _run(settings, plan, Lines(sys.stdout.buffer, form, decoder.decode))
        finally:
            close()
        if decoder.failures > 1:
            note(f"note: {decoder.failures:,} keys and values could not be decoded")
    else:
        outcome, seconds = _run(settings, plan, Lines(sys.stdout.buffer, form))
    note(
        f"{counted(outcome.records, 'record')}, {size_text(outcome.bytes)}, {rate(outcome.records, seconds)}"
        + (", interrupted" if outcome.ended_by == "interrupted" else "")
    )
    if outcome.ended_by == "interrupted":
        raise SystemExit(EXIT_INTERRUPTED)


class Lines:
    """A sink that writes records as lines: one write per poll, and a flush if standard output is a terminal."""

    def __init__(self, out: BinaryIO, form: Format, decode: Callable[[Any], Any] | None = None) -> None:
        self._out = out
        self._format = form
        self._decode = decode

    def write(self, records: list[Any]) -> int:
        data = self._format(records if self._decode is None else map(self._decode, records))
        try:
            self._out.write(data)
            self._out.flush()
        except BrokenPipeError:
            discard_stdout()
            raise
        return len(data)


def _format(*, json: bool, template: str | None, show: tuple[bool, bool, bool, bool], separator: str) -> Format:
    from barnabas.cli.records.line_format import LinePrinter, unescape
    from barnabas.cli.records.record_text import LineTemplate, json_lines

    if (json, template is not None, any(show)).count(True) > 1:
        raise ValueError("--json, --format and the options that show parts of a record exclude each other")
    if json:
        return json_lines
    if template is not None:
        return LineTemplate.parse(template).format_many
    timestamps, offsets, headers, key = show
    return LinePrinter(
        print_timestamp=timestamps,
        print_partition=offsets,
        print_offset=offsets,
        print_headers=headers,
        print_key=key,
        key_separator=unescape(separator),
    ).format_many


def _run(settings: dict[str, object], plan: ConsumePlan, sink: Lines) -> tuple[ConsumeProgress, float]:
    from barnabas.cli.records.consuming import consume

    began = time.monotonic()
    if sys.stdout.isatty() or not sys.stderr.isatty():
        outcome = run(lambda: consume(settings, plan, sink))
        return outcome, max(time.monotonic() - began, 1e-9)
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"from {plan.topic}", total=plan.records_max)

        def show(outcome: ConsumeProgress) -> None:
            progress.update(
                task, completed=outcome.records, description=f"from {plan.topic}: {outcome.records:,} records"
            )

        outcome = run(lambda: consume(settings, plan, sink, on_progress=show))
    return outcome, max(time.monotonic() - began, 1e-9)
