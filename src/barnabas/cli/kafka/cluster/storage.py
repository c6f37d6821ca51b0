"""Shell: `kafka-storage`: random-uuid, format and info. Barnabas needs no format step; existing scripts call it."""

from __future__ import annotations

from pathlib import Path

from barnabas.cli.kafka.arguments import Parser, emit
from barnabas.cli.output import fail
from barnabas.cli.session import read_properties
from barnabas.core.clock import SystemClock
from barnabas.core.config import ConfigError
from barnabas.core.ids import uuid_to_text
from barnabas.core.properties import parse_properties, render_properties
from barnabas.core.rng import random_uuid, secure_rng, system_rng
from barnabas.server.metadata.features import METADATA_VERSION_NAMES, bootstrap_records
from barnabas.server.metadata.records.codec import LATEST_METADATA_VERSION
from barnabas.server.node.setup.first_users import first_user_records
from barnabas.server.quorum.snapshot_files import BOOTSTRAP_FILE, render_snapshot

_LEVEL = METADATA_VERSION_NAMES[LATEST_METADATA_VERSION]


def main() -> None:
    parser = Parser("kafka-storage", "Format or show a broker's log directories.", bootstrap=False)
    actions = parser.add_subparsers(dest="action", required=True, parser_class=_SubParser)
    actions.add_parser("random-uuid", help="print a new cluster id")
    for action in ("format", "info"):
        sub = actions.add_parser(action)
        sub.add_argument("--config", "-c", required=True, metavar="FILE")
        if action == "format":
            sub.add_argument("--cluster-id", "-t", required=True)
            sub.add_argument("--ignore-formatted", "-g", action="store_true")
            sub.add_argument("--standalone", "-s", action="store_true")
            sub.add_argument("--no-initial-controllers", "-N", action="store_true")
            sub.add_argument("--initial-controllers", "-I")
            sub.add_argument("--release-version", "-r")
            sub.add_argument("--feature", "-f", action="append")
            sub.add_argument("--add-scram", "-S", action="append", default=[], metavar="SCRAM")
    for action in ("version-mapping", "feature-dependencies"):
        actions.add_parser(action)
    options = parser.parse_args()
    if options.action == "random-uuid":
        emit(uuid_to_text(random_uuid(system_rng())))
        return
    if options.action in ("version-mapping", "feature-dependencies"):
        parser.error(f"{options.action} is not supported: a broker of this version supports only one level")
    settings = {name: str(value) for name, value in read_properties(options.config).items()}
    directories = [
        Path(d.strip()) for d in settings.get("log.dirs", settings.get("log.dir", "/tmp/kafka-logs")).split(",")
    ]
    if options.action == "info":
        _info(directories)
    else:
        _format(directories, settings, options.cluster_id, options.add_scram, ignore_formatted=options.ignore_formatted)


class _SubParser(Parser):
    def __init__(self, **keywords: object) -> None:
        super().__init__(str(keywords["prog"]), str(keywords.get("description") or ""), bootstrap=False)


def _info(directories: list[Path]) -> None:
    emit("Found log directories:" if len(directories) > 1 else "Found log directory:")
    for directory in directories:
        emit(f"  {directory}")
    for directory in directories:
        path = directory / "meta.properties"
        if path.exists():
            found = sorted(parse_properties(path.read_text(encoding="utf-8")).items())
            emit(f"\nFound metadata: {{{', '.join(f'{name}={value}' for name, value in found)}}}\n")
        else:
            emit(f"\n{directory} is not formatted yet; `barnabas serve` formats it at the first start.")


def _format(
    directories: list[Path], settings: dict[str, str], cluster_id: str, users: list[str], *, ignore_formatted: bool
) -> None:
    """Write meta.properties, and the first users if there are any. The server writes all other first metadata records
    itself. `users` are texts of `--add-scram`."""
    try:
        first_records = first_user_records(users, secure_rng()) if users else []
    except ConfigError as error:
        fail(str(error))
    node = settings.get("node.id", settings.get("broker.id", "1"))
    formatted = [directory for directory in directories if (directory / "meta.properties").exists()]
    if formatted and not ignore_formatted:
        fail(
            f"Log directory {formatted[0]} is already formatted. "
            "Use --ignore-formatted to ignore this directory and format the others."
        )
    for directory in directories:
        if directory in formatted:
            continue
        directory.mkdir(parents=True, exist_ok=True)
        directory_id = uuid_to_text(random_uuid(system_rng()))
        identity = {"version": "1", "cluster.id": cluster_id, "node.id": node, "directory.id": directory_id}
        (directory / "meta.properties").write_text(render_properties(identity), encoding="utf-8")
        kind = "metadata" if directory is directories[0] else "data"
        emit(f"Formatting {kind} directory {directory} with metadata.version {_LEVEL}.")
    if first_records:
        home = Path(settings.get("metadata.log.dir") or directories[0])
        home.mkdir(parents=True, exist_ok=True)
        snapshot = render_snapshot(
            [*bootstrap_records(), *first_records],
            epoch=0,
            timestamp_ms=SystemClock().now_ms(),
            metadata_version=LATEST_METADATA_VERSION,
        )
        (home / BOOTSTRAP_FILE).write_bytes(b"".join(snapshot))
