"""The exactly-once sink: whatever crashes, and in whatever order, each row is visible once."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from barnabas.spark.errors import DeliveryError
from tests.property.delivery_model import NAME, ROWS, Cluster, CrashError, Spark

BATCHES = 5
SEEDS = 60


async def play(
    seed: int, *, zombies: bool = False, time_outs: bool = False, stop_share: float = 0.0
) -> tuple[Spark, Cluster]:
    """Run a query to its end through random crashes; then once more without any, so that orphans are collected."""
    rng = Random(seed)
    cluster = Cluster(rng, crash_share=rng.choice((0.01, 0.03, 0.1)))
    spark = Spark(cluster, rng, BATCHES, fault_share=0.3, stop_share=stop_share)

    async def run() -> None:
        try:
            await spark.run()
        except CrashError:
            pass
        except DeliveryError as error:
            spark.errors.append(error)

    for number in range(200):
        if number > 100:
            cluster.crash_share = spark.stop_share = 0.0
        if zombies and rng.random() < 0.5:  # a driver that is taken for dead goes on beside the next one
            await asyncio.gather(run(), run())
        else:
            await run()
        if time_outs and rng.random() < 0.3:
            cluster.time_out()
        if spark.committed + 1 == BATCHES or "are lost" in str(spark.errors[-1:]):
            break
    else:
        pytest.fail(f"the query does not end: {spark.errors[-3:]}")
    await asyncio.gather(*spark.late)
    cluster.crash_share = 0.0
    try:
        await spark.driver().recover(NAME)
    except DeliveryError as error:
        spark.errors.append(error)
    return spark, cluster


@pytest.mark.parametrize("zombies", [False, True])
def test_rows_are_visible_once_and_no_transaction_stays_open(zombies: bool) -> None:
    crashes = 0
    for seed in range(SEEDS):
        spark, cluster = asyncio.run(play(seed, zombies=zombies))
        assert sorted(cluster.visible) == list(range(BATCHES * ROWS)), f"seed {seed}: {spark.errors}"
        assert [i for i, slot in cluster.slots.items() if slot.rows is not None] == [], f"seed {seed}"
        crashes += cluster.crashes
    assert crashes > SEEDS


@pytest.mark.parametrize("zombies", [False, True])
def test_a_query_that_is_stopped_in_a_micro_batch_loses_and_doubles_nothing(zombies: bool) -> None:
    stops = 0
    for seed in range(SEEDS):
        spark, cluster = asyncio.run(play(seed, zombies=zombies, stop_share=0.3))
        assert sorted(cluster.visible) == list(range(BATCHES * ROWS)), f"seed {seed}: {spark.errors}"
        assert [i for i, slot in cluster.slots.items() if slot.rows is not None] == [], f"seed {seed}"
        stops += spark.stops
    assert stops > SEEDS


def test_rows_of_transactions_that_timed_out_are_never_lost_silently() -> None:
    lost = 0
    for seed in range(SEEDS):
        spark, cluster = asyncio.run(play(seed, time_outs=True))
        exact = sorted(cluster.visible) == list(range(BATCHES * ROWS))
        assert len(cluster.visible) == len(set(cluster.visible)), f"seed {seed}: a row is doubled"
        loud = any("are lost" in str(error) for error in spark.errors)
        assert exact or loud, f"seed {seed}: {sorted(cluster.visible)}, {spark.errors}"
        lost += loud
    assert lost, "no run lost a decided transaction: the test shows nothing"
