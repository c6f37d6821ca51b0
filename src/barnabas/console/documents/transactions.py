"""Shell: transactions: the list, one transaction, and those that hang."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from barnabas.console.documents.lists import page_of
from barnabas.console.errors import NotFoundError
from barnabas.console.sources import Call
from barnabas.core.errors import ErrorCode, KafkaError

HANGING_AFTER_MS: Final = 900_000
"""transaction.max.timeout.ms of a broker: no coordinator lets a transaction stay open longer."""
_PARTITIONS_MAX: Final = 5_000


async def transaction_list(call: Call) -> dict[str, Any]:
    """Transactional ids with their states; on request the transactions that hang."""
    rows = [
        {
            "id": listing.transactional_id,
            "state": listing.state,
            "producer_id": listing.producer_id,
            "coordinator": listing.coordinator,
        }
        for listing in await call.admin.list_transactions()
    ]
    sorts = {name: (lambda row, name=name: row[name]) for name in ("id", "state", "producer_id", "coordinator")}
    page = page_of(rows, call.query, name="id", sorts=sorts)
    hanging = await _hanging(call) if call.query.get("hanging") else None
    return {**page, "hanging": hanging, "hanging_after_ms": HANGING_AFTER_MS}


async def _hanging(call: Call) -> list[dict[str, Any]]:
    sample = call.sources.sampler.sample
    partitions = [p.topic_partition for view in sample.topics.values() for p in view.partitions if p.leader >= 0]
    found = await call.admin.find_hanging_transactions(
        partitions[:_PARTITIONS_MAX], older_than_ms=HANGING_AFTER_MS, now_ms=call.now_ms
    )
    return [{"topic": h.partition.topic, "partition": h.partition.partition, **asdict(h.producer)} for h in found]


async def transaction(call: Call) -> dict[str, Any]:
    """One transactional id: its producer, age and partitions."""
    name = call.path["id"]
    found = (await call.admin.describe_transactions([name]))[name]
    if isinstance(found, KafkaError):
        if found.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise NotFoundError(f"The transactional id {name!r} does not exist.")
        raise found
    ongoing = found.state == "Ongoing" or found.state.startswith("Prepare")
    return {
        "id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator": found.coordinator,
        "timeout_ms": found.timeout_ms,
        "started_ms": found.started_ms,
        "lasted_ms": call.now_ms - found.started_ms if ongoing and found.started_ms > 0 else None,
        "overdue": ongoing and 0 < found.started_ms < call.now_ms - found.timeout_ms,
        "partitions": [{"topic": p.topic, "partition": p.partition} for p in sorted(found.partitions)],
    }
