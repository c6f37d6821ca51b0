"""Shell: `barnabas topics why` and `barnabas groups why`: explanations, from facts that Barnabas brokers report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.completing import groups as complete_groups
from barnabas.cli.completing import topics as complete_topics
from barnabas.cli.options import Bootstrap, CommandConfig, Json
from barnabas.cli.output import EXIT_FAILED, emit, print_json, print_table, size_text
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.maintenance import GroupFacts, PartitionFacts
    from barnabas.core.errors import KafkaError
    from barnabas.core.ids import TopicPartition


def topics_why(
    topics: Annotated[
        list[str], typer.Argument(help="TOPIC or TOPIC:0,1.", metavar="TOPIC...", autocompletion=complete_topics)
    ],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Explain why read_committed consumers are held back, why a log is not compacted, and why old records are still
    kept.

    Example: `barnabas topics why orders:0`
    """
    from barnabas.client.explanations.partition import answers
    from barnabas.core.errors import KafkaError

    async def command(admin: AsyncAdmin) -> dict[TopicPartition, PartitionFacts | KafkaError]:
        from barnabas.client.admin.offset_resets import select_partitions

        return await admin.explain_partitions(await select_partitions(admin, "", topics))

    found = sorted(run_admin(bootstrap_server, command, read_properties(command_config)).items())
    if json:
        print_json(
            [
                {"partition": str(name), "error": str(facts)}
                if isinstance(facts, KafkaError)
                else {"partition": str(name), **asdict(facts), "why": answers(name, facts)}
                for name, facts in found
            ]
        )
    else:
        _print_partitions([(name, facts) for name, facts in found if not isinstance(facts, KafkaError)])
        for name, facts in found:
            emit("")
            emit(f"{name}: {facts}" if isinstance(facts, KafkaError) else str(name))
            if not isinstance(facts, KafkaError):
                _print_answers(answers(name, facts))
    if any(isinstance(facts, KafkaError) for _, facts in found):
        raise SystemExit(EXIT_FAILED)


def _print_partitions(found: list[tuple[TopicPartition, PartitionFacts]]) -> None:
    print_table(
        ["PARTITION", "START>", "STABLE>", "WATERMARK>", "END>", "SIZE>", "SEGMENTS>", "PRODUCERS>", "OPEN TXNS>"],
        [
            (
                str(name),
                f.log_start_offset,
                f.last_stable_offset,
                f.high_watermark,
                f.log_end_offset,
                size_text(f.size_bytes),
                f.segments,
                f.producers,
                f.open_transaction_count,
            )
            for name, f in found
        ],
    )


def _print_answers(found: Mapping[str, list[str]]) -> None:
    width = max(len(question) for question in found) + 2
    for question, sentences in found.items():
        for place, sentence in enumerate(sentences):
            emit(f"  {'' if place else question:<{width}}{sentence}")


def groups_why(
    groups: Annotated[list[str], typer.Argument(help="Group ids.", metavar="GROUP...", autocompletion=complete_groups)],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Explain why a group rebalances, for which members it waits and how long, and when its offsets expire.

    Example: `barnabas groups why billing`
    """
    from barnabas.client.explanations.group import answers
    from barnabas.core.errors import KafkaError

    async def command(admin: AsyncAdmin) -> dict[str, GroupFacts]:
        found: dict[str, GroupFacts] = {}
        for name, facts in (await admin.explain_groups(groups)).items():
            if isinstance(facts, KafkaError):
                raise KafkaError(facts.code, f"group {name}: {facts}")
            found[name] = facts
        return found

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json([{**asdict(facts), "why": answers(facts)} for facts in found.values()])
        return
    for place, facts in enumerate(found.values()):
        if place:
            emit("")
        _print_answers(answers(facts))
        if facts.members:
            emit("")
            _print_members(facts)


def _print_members(facts: GroupFacts) -> None:
    def left(ms: int) -> Any:
        return None if ms < 0 else f"{ms / 1000:.1f} s"

    print_table(
        ["MEMBER", "CLIENT", "HOST", "EPOCH>", "PENDING STEP", "SESSION LEFT>", "REBALANCE LEFT>"],
        [
            (m.member_id, m.client_id, m.client_host, m.epoch, m.pending, left(m.session_left_ms),
             left(m.rebalance_left_ms))
            for m in facts.members
        ],
    )  # fmt: skip
