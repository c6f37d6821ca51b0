"""Shell: `kafka-metadata-shell`: shows the metadata in a file of the metadata log as directories and files.

    kafka-metadata-shell --snapshot data/__cluster_metadata-0 ls /image/topics/byName
    kafka-metadata-shell --snapshot data/__cluster_metadata-0/00000000000000000000.log        # a prompt

The files may be those of Barnabas or of Apache Kafka. Nothing is written and no lock is taken: the node may run.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.arguments import Parser, emit
from barnabas.cli.output import EXIT_FAILED, fail

if TYPE_CHECKING:
    from barnabas.cli.kafka.cluster.metadata_commands import MetadataShell
    from barnabas.server.metadata.image.cluster import ClusterImage
    from barnabas.server.metadata.loader import Loader
    from barnabas.server.metadata.records.base import MetadataRecord

PROMPT: Final = ">> "


def build_parser() -> Parser:
    parser = Parser("kafka-metadata-shell", "Show the metadata of a cluster as directories and files.", bootstrap=False)
    parser.add_argument(
        "--snapshot", "-s", required=True, metavar="FILE",
        help="a .checkpoint or .log file of __cluster_metadata-0; or this directory, for its newest checkpoint and the "
        "log after it",
    )  # fmt: skip
    parser.add_argument("command", nargs="*", help="the command to run, for example: ls /image; without one: a prompt")
    return parser


def main() -> None:
    options = build_parser().parse_args()
    from barnabas.cli.kafka.cluster.metadata_commands import SHELL_ONLY, MetadataShell
    from barnabas.cli.kafka.cluster.metadata_tree import metadata_tree
    from barnabas.core.errors import BarnabasError

    try:
        root = metadata_tree(read_image(Path(options.snapshot)))
    except (OSError, BarnabasError) as error:
        fail(str(error))
    if options.command:
        if options.command[0] in SHELL_ONLY:
            fail(f"{options.command[0]} works at the prompt only: leave out the command.")
        shell = MetadataShell(root)
        for line in shell.run(options.command):
            emit(line)
        if shell.failed:
            raise SystemExit(EXIT_FAILED)
        return
    emit("[ Kafka Metadata Shell ]")
    _prompt(MetadataShell(root, width=shutil.get_terminal_size().columns))


def read_image(path: Path) -> ClusterImage:
    """The metadata in a file, or in the newest checkpoint of a directory and the log after it. Raises OSError, or
    BarnabasError for a file that is not one of the metadata log."""
    from barnabas.server.metadata.errors import MetadataError
    from barnabas.server.metadata.loader import Loader
    from barnabas.server.metadata.publish import Publisher

    files = [path]
    if path.is_dir():
        files = [*sorted(path.glob("*.checkpoint"))[-1:], *sorted(path.glob("*.log"))]
        if not files:
            raise MetadataError(
                f"{path} has no .checkpoint and no .log file. Choose the directory __cluster_metadata-0."
            )
    publisher = Publisher()
    loader = Loader(publisher)
    for file in files:
        _load(file, loader)
    return publisher.image


def _load(file: Path, loader: Loader) -> None:
    from barnabas.protocol.records.batch import iter_batches, iter_records
    from barnabas.server.metadata.ports import CommittedBatch, LoadedSnapshot
    from barnabas.server.metadata.records.codec import decode_record

    data = memoryview(file.read_bytes())
    in_snapshot: list[MetadataRecord] = []
    timestamp_ms = -1
    for position, header in iter_batches(data):
        timestamp_ms = header.max_timestamp
        if header.is_control:
            continue
        records = tuple(decode_record(one.value or b"") for one in iter_records(data, position, header))
        if file.suffix == ".checkpoint":
            in_snapshot += records
        elif header.base_offset > loader.loaded_offset:
            loader.on_commit(CommittedBatch(header.base_offset, header.partition_leader_epoch, timestamp_ms, records))
    if file.suffix == ".checkpoint":
        end, epoch = (int(number) for number in file.name.split(".")[0].split("-"))
        loader.on_snapshot(LoadedSnapshot(end, epoch, timestamp_ms, in_snapshot))


def _prompt(shell: MetadataShell) -> None:
    """Commands of standard input, with completion and history on a terminal. Ends with `exit` or at the end."""
    history: list[str] = []
    if sys.stdin.isatty():
        _complete_with(shell)
    while True:
        try:
            line = input(PROMPT).strip()
            if line:
                history.append(line)
            words = shlex.split(line)
        except EOFError:
            return
        except KeyboardInterrupt:
            emit("^C")
            continue
        except ValueError as error:  # a quote that is not closed
            emit(f"{error}.")
            continue
        if words[:1] == ["exit"]:
            return
        if words[:1] == ["history"]:
            count = int(words[1]) if words[1:] and words[1].isdigit() else len(history)
            for number, old in list(enumerate(history))[max(len(history) - count, 0) :]:
                emit(f"{number:5d}  {old}")
            continue
        for text in shell.run(words):
            emit(text)


def _complete_with(shell: MetadataShell) -> None:
    import readline

    from barnabas.cli.kafka.cluster.metadata_commands import COMMANDS

    def complete(text: str, index: int) -> str | None:
        is_command = not readline.get_line_buffer()[: readline.get_begidx()].strip()
        found = [f"{name} " for name in COMMANDS if name.startswith(text)] if is_command else shell.complete(text)
        return found[index] if index < len(found) else None

    readline.set_completer_delims(" \t")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
