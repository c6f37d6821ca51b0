"""Shell: `kafka-cluster-mirrors` (KIP-1279): cluster links with the name and flags that Kafka's tool will have.

The KIP is not released, so the flags are those of its text. A mirror is what `barnabas links` calls a link.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.arguments import Parser, client_settings, emit, emit_columns, split_list
from barnabas.cli.session import read_properties, run_admin
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.regex import Re2Pattern

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.links import Link, LinkDescription, MirrorChange, MirrorStatus

_ACTIONS: Final = ("create", "start", "stop", "pause", "resume", "recover", "delete", "list", "describe")
_PATTERNS: Final = (
    "mirror.topics.include",
    "mirror.topics.exclude",
    "mirror.groups.include",
    "mirror.groups.exclude",
)
"""Keys of the file of `--mirror-config` that are lists of patterns."""
_STOP_TIMEOUT_S: Final = 60.0


def build_parser() -> Parser:
    parser = Parser("kafka-cluster-mirrors", "Mirrors of the topics of another cluster, with the same offsets.")
    actions = parser.add_mutually_exclusive_group(required=True)
    for flag in _ACTIONS:
        actions.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--mirror", metavar="NAME", help="the name of the mirror (the link)")
    parser.add_argument("--topics", metavar="REGEX,...", help="the topics; by default all of the mirror")
    parser.add_argument("--exclude", metavar="REGEX,...", help="with --create: topics that are not mirrored")
    parser.add_argument(
        "--mirror-config",
        metavar="FILE",
        help="with --create: bootstrap.servers and other client settings for the source cluster, and mirror.* settings",
    )
    parser.add_argument("--json", action="store_true", help="with --list and --describe")
    parser.add_argument("--failed", action="store_true", help="with --describe: only partitions that are FAILED")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    action = next(flag for flag in _ACTIONS if getattr(options, flag))
    if action != "list" and options.mirror is None:
        parser.error(f"--{action} needs --mirror")
    if action == "create" and options.mirror_config is None:
        parser.error("--create needs --mirror-config, a file with bootstrap.servers of the source cluster")
    for flag, of in (("exclude", ("create",)), ("mirror_config", ("create",)), ("failed", ("describe",))):
        if getattr(options, flag) and action not in of:
            parser.error(f"--{flag.replace('_', '-')} is only allowed with --{of[0]}")
    if options.json and action not in ("list", "describe"):
        parser.error("--json is only allowed with --list and --describe")

    async def command(admin: AsyncAdmin) -> None:
        match action:
            case "create":
                await _create(admin, parser, options)
            case "delete":
                await admin.delete_link(options.mirror)
                emit(f"Deleted mirror {options.mirror}.")
            case "list":
                await _list(admin, as_json=options.json)
            case "describe":
                await _describe(admin, options)
            case _:
                await _change(admin, action, options)

    run_admin(options.bootstrap_server, command, client_settings(options))


def link_of(name: str, settings: dict[str, str], topics: str | None, exclude: str | None) -> Link:
    """The link that the file of `--mirror-config` describes. Raises ValueError."""
    from barnabas.client.admin.links import Link

    servers = settings.pop("bootstrap.servers", "")
    if not servers:
        raise ValueError("--mirror-config: bootstrap.servers is missing: name brokers of the source cluster.")
    listed = {key: tuple(split_list(settings.pop(key, ""))) for key in _PATTERNS}
    rules = settings.pop("mirror.acl.include", "")
    own = {key: value for key, value in settings.items() if key.startswith("mirror.")}
    return Link(
        name,
        servers,
        {key: value for key, value in settings.items() if key not in own},
        topics=listed["mirror.topics.include"] if topics is None else tuple(split_list(topics)),
        topics_exclude=listed["mirror.topics.exclude"] if exclude is None else tuple(split_list(exclude)),
        groups=listed["mirror.groups.include"],
        groups_exclude=listed["mirror.groups.exclude"],
        acls=tuple(part for part in rules.split(",") if part),
        settings=own,
    )


async def _create(admin: AsyncAdmin, parser: Parser, options: argparse.Namespace) -> None:
    settings = {key: str(value) for key, value in read_properties(options.mirror_config).items()}
    try:
        link = link_of(options.mirror, settings, options.topics, options.exclude)
    except ValueError as error:
        parser.error(str(error))
    stored = await admin.create_link(link)
    emit(f"Created mirror {stored.name} of cluster {stored.source_cluster_id}.")


async def _change(admin: AsyncAdmin, action: str, options: argparse.Namespace) -> None:
    from barnabas.client.admin.links import MirrorAction
    from barnabas.client.links.cutover import failover

    topics = split_list(options.topics or "")
    if action == "stop":
        changes = await failover(admin, options.mirror, topics, timeout_s=_STOP_TIMEOUT_S)
    else:
        changes = await admin.alter_mirrors(options.mirror, MirrorAction[action.upper()], topics)
    for change in changes:
        emit(_sentence(change, action))
    errors = [change.error for change in changes if change.error is not None]
    if errors:
        raise KafkaError(errors[0].code, f"{len(errors)} of {len(changes)} topics could not be changed.")


def _sentence(change: MirrorChange, action: str) -> str:
    if change.error is not None:
        return f"Topic {change.topic}: {change.error}"
    state = "stopped" if action == "stop" else change.state
    return f"Topic {change.topic}: {state}"


async def _list(admin: AsyncAdmin, *, as_json: bool) -> None:
    links = await admin.describe_links()
    if as_json:
        emit(json.dumps([{"mirror": name, "source": link.link.bootstrap_servers} for name, link in links.items()]))
        return
    for name in links:
        emit(name)


async def _describe(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    from barnabas.client.links.cutover import require_link

    described = await require_link(admin, options.mirror)
    now = {status.partition: status for status in await admin.describe_mirrors([options.mirror])}
    rows = select_topics(_rows(described, now), split_list(options.topics or ""))
    if options.failed:
        rows = [row for row in rows if row["state"] == "FAILED"]
    name, source = described.link.name, described.link.bootstrap_servers
    if options.json:
        emit(json.dumps({"mirror": name, "source": source, "trouble": described.trouble, "partitions": rows}))
        return
    emit(f"Mirror: {name}\tSource: {source}\tTrouble: {described.trouble or '-'}")
    if rows:
        names = ("topic", "partition", "state", "lag", "reason")
        emit_columns([[n.upper() for n in names], *([str(row[n]) for n in names] for row in rows)])


def select_topics(rows: Sequence[dict[str, object]], patterns: Sequence[str]) -> list[dict[str, object]]:
    """The rows of the topics that one of the patterns matches; all of them without patterns. Raises KafkaError."""
    compiled = [Re2Pattern(pattern) for pattern in patterns]
    return [row for row in rows if not compiled or any(pattern.matches(str(row["topic"])) for pattern in compiled)]


def _rows(described: LinkDescription, now: Mapping[TopicPartition, MirrorStatus]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for mirror in sorted(described.mirrors, key=lambda mirror: (mirror.topic or mirror.topic_id, mirror.partition)):
        status = now.get(TopicPartition(mirror.topic or "", mirror.partition))
        rows.append(
            {
                "topic": mirror.topic or mirror.topic_id,
                "partition": mirror.partition,
                "state": mirror.state if status is None else status.state,
                "lag": -1 if status is None else status.lag,
                "reason": (mirror.reason if status is None else status.reason) or "-",
            }
        )
    return rows
