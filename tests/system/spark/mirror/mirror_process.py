"""A copier as a process of its own, for tests that kill it: `python -m tests.system.spark.mirror.mirror_process`.

Arguments: source servers, target servers, offsets topic, and pairs SOURCE_TOPIC=TARGET_TOPIC. Runs until it is killed;
a copier that fails is started again, as `barnabas mirror run` does.
"""

from __future__ import annotations

import sys
import time

from barnabas.core.errors import BarnabasError
from barnabas.spark.environment import prepare_environment
from barnabas.spark.mirror.copying.copier import SparkCopier
from barnabas.spark.mirror.ports import CopyPlan


def main() -> None:
    source, target, offsets, *pairs = sys.argv[1:]
    prepare_environment()
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", False).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    plan = CopyPlan(
        "A",
        "B",
        {"bootstrap.servers": source},
        {"bootstrap.servers": target},
        dict(pair.split("=") for pair in pairs),
        offsets_topic=offsets,
        options={"max.bytes.per.trigger": "20000"},  # many small micro-batches
    )
    copier = SparkCopier(spark)
    while True:
        try:
            copier.start(plan, lambda _: None)
            while (failure := copier.failure()) is None:
                time.sleep(0.1)  # between two looks at the copier's thread
            print(f"copier failed: {failure}", flush=True)
        except BarnabasError as error:
            print(f"copier did not start: {error}", flush=True)
            time.sleep(0.5)  # before the next attempt
        copier.stop(10)


if __name__ == "__main__":
    main()
