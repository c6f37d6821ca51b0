"""Shell: the workload of a topic that is deleted and created again under its consumers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.testing.sim.errors import LivenessError
from barnabas.testing.sim.workload.impatience import Impatience
from barnabas.testing.sim.workload.supervisor import PATIENCE, decode, encode

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.consumer.consumer import AsyncConsumer
    from barnabas.testing.sim.workload.supervisor import Workload

FLEETING: Final = "fleeting"
"""The topic that is deleted and created again."""
FOLLOWERS: Final = "followers"
"""The group id of the group members that read the topic."""
_TP: Final = TopicPartition(FLEETING, 0)
_WITHIN_S: Final = 40.0


async def recreate(workload: Workload, who: str) -> None:
    """Deletes the topic, creates it again, and sends some records, usually fewer than before."""
    rng, facts = workload.world.random_stream(who), workload.facts
    async with workload.world.admin(default_api_timeout_ms=5_000, **PATIENCE) as admin:
        while not workload.stopping:
            if not workload.calm:
                facts.fleeting.clear()
                try:
                    await admin.delete_topics([FLEETING])
                    await admin.create_topic(FLEETING, 1)
                except KafkaError as error:
                    if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                        raise
            before = await _topic_id(admin)
            sent: set[int | str] = set()
            async with workload.world.producer(delivery_timeout_ms=4_000, max_block_ms=4_000, **PATIENCE) as producer:
                for _ in range(rng.choice([1, 3, 10, 30])):
                    value = workload.value()
                    await (await producer.send(FLEETING, encode(value, rng), partition=0))
                    sent.add(value)
            # A request that timed out may delete the topic later. Only what is in the present topic counts.
            if before is not None and before == await _topic_id(admin):
                if facts.fleeting_id != before:
                    facts.fleeting.clear()
                facts.fleeting_id = before
                facts.fleeting.update(sent)
            await asyncio.sleep(rng.random() * 3.0)


async def _topic_id(admin: AsyncAdmin) -> UUID | None:
    found = (await admin.describe_topics([FLEETING]))[FLEETING]
    return None if isinstance(found, KafkaError) else found.topic_id


async def follow(workload: Workload, who: str) -> None:
    """Reads the topic: the first of the programs as a member of a group, the others by manual assignment."""
    impatience = Impatience(workload, who)
    in_group = who.startswith("f1")
    async with workload.world.consumer(
        group_id=FOLLOWERS if in_group else None,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=300,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        fetch_max_wait_ms=200,
        default_api_timeout_ms=8_000,
        metadata_max_age_ms=1_000,
        group_protocol="classic" if workload.world.seed % 2 else "consumer",
        **PATIENCE,
    ) as consumer:
        if in_group:
            consumer.subscribe([FLEETING])
        else:
            consumer.assign([_TP])
        while not workload.stopping:
            await _read(workload, consumer, impatience, who.partition(".")[0])


async def _read(workload: Workload, consumer: AsyncConsumer, impatience: Impatience, host: str) -> None:
    for record in await impatience.read(consumer, 300.0):
        workload.facts.followed.setdefault(host, set()).add(decode(record.value))


async def until_followed(workload: Workload) -> None:
    """Waits until every follower has read what the last of the topics has."""
    facts, hosts = workload.facts, [host for host in workload.hosts if host.startswith("f")]
    if not hosts:
        return
    async with workload.world.admin(default_api_timeout_ms=30_000) as admin:
        if facts.fleeting_id is None or facts.fleeting_id != await _topic_id(admin):
            return
    wanted = frozenset(facts.fleeting)

    def done() -> bool:
        return all(wanted <= facts.followed.get(host, set()) for host in hosts)

    try:
        await workload.world.until(done, _WITHIN_S, "the followers read a topic that was created again")
    except LivenessError as error:
        missing = {host: len(wanted - facts.followed.get(host, set())) for host in hosts}
        raise LivenessError(f"{error} Of its {len(wanted)} records they have not read: {missing}.") from error
