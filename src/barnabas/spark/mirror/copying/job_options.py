"""Codec: the options of a copy plan -> `JobOptions` and the `CopyJob` of its tasks.

trigger.interval.ms           100             the pause before the source is read again, if it had no new records
max.bytes.per.trigger         268435456       about how many bytes of batches a micro-batch copies, in all tasks
tasks.max                     Spark's cores   the tasks of a micro-batch; a partition is never divided
transactional.id.prefix       barnabas-mirror what the transactional ids in the target cluster begin with
delivery.ledger               __barnabas_delivery   the topic of the target cluster that has the decisions
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.protocol.records.compression import CompressionType, producer_codec
from barnabas.spark.delivery.names import SinkName
from barnabas.spark.mirror.copying.planner import StartAt
from barnabas.spark.mirror.copying.values import CopyJob, Provenance
from barnabas.spark.mirror.errors import MirrorConfigError
from barnabas.spark.mirror.ports import CopyPlan
from barnabas.spark.options import DELIVERY_LEDGER

_NUMBERS: Final = {"trigger.interval.ms": 100, "max.bytes.per.trigger": 256 * 1024 * 1024, "tasks.max": 0}
_TEXTS: Final = {"transactional.id.prefix": "barnabas-mirror", "delivery.ledger": DELIVERY_LEDGER}
_OURS: Final = ("transactional.id", "transaction.two.phase.commit.enable", "group.id", "auto.offset.reset")
"""Client settings that the copier sets or reads itself."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What the driver needs of the options."""

    start_at: StartAt
    trigger_interval_ms: int
    bytes_max: int
    tasks_max: int | None
    """None: as many as Spark has cores."""
    ledger: str
    name: SinkName


def parse_job_options(plan: CopyPlan) -> JobOptions:
    """Raises MirrorConfigError for an unknown or invalid option."""
    unknown = [name for name in plan.options if name not in _NUMBERS and name not in _TEXTS]
    if unknown:
        known = ", ".join((*_NUMBERS, *_TEXTS))
        raise MirrorConfigError(f"there is no option {unknown[0]} of copying; the options are {known}")
    numbers = {name: _number(plan.options, name, default) for name, default in _NUMBERS.items()}
    return JobOptions(
        start_at=StartAt.parse(plan.source_settings.get("auto.offset.reset", StartAt.EARLIEST.value)),
        trigger_interval_ms=numbers["trigger.interval.ms"],
        bytes_max=numbers["max.bytes.per.trigger"],
        tasks_max=numbers["tasks.max"] or None,
        ledger=plan.options.get("delivery.ledger", _TEXTS["delivery.ledger"]),
        name=SinkName(plan.options.get("transactional.id.prefix", _TEXTS["transactional.id.prefix"]), pair_id(plan)),
    )


def pair_id(plan: CopyPlan) -> str:
    """The name of the pair in transactional ids and in the ledger. Dots separate the parts of an id, so the dots of an
    alias are written in another way."""
    source, target = (alias.replace("%", "%25").replace(".", "%2E") for alias in (plan.source_alias, plan.target_alias))
    return f"{source}->{target}"


def copy_job(plan: CopyPlan, options: JobOptions, run_id: str, tasks: int) -> CopyJob:
    """What the tasks of this plan have in common. Raises MirrorConfigError.

    Without `isolation.level`, exactly once reads committed records only, and at least once reads all, as Kafka's
    connector does.
    """
    source = _without(plan.source_settings)
    source.setdefault("isolation.level", "read_committed" if plan.transactional else "read_uncommitted")
    return CopyJob(
        source_settings=source,
        target_settings=_without(plan.target_settings),
        name=options.name,
        run_id=run_id,
        transactional=plan.transactional,
        codec=_codec(plan.target_settings),
        provenance=None
        if plan.provenance_header is None
        else Provenance(plan.provenance_header, plan.source_alias, plan.target_alias),
        bytes_max=max(options.bytes_max // tasks, 1),
    )


def _codec(settings: Mapping[str, str]) -> CompressionType | None:
    """The codec of `compression.type`; None if it is not set: then batches keep the codec that they have."""
    text = settings.get("compression.type")
    if text is None:
        return None
    try:
        return producer_codec(text.strip())
    except ValueError as error:
        raise MirrorConfigError(f"compression.type of the target cluster: {error}") from None


def _without(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in settings.items() if name not in _OURS}


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or int(text) < 1:
        raise MirrorConfigError(f"{name}={text} is not possible; give a whole number above 0")
    return int(text)
