"""Shell: writes the project of `barnabas pipelines init`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.spark.pipelines.errors import PipelineError

_SPEC: Final = """name: {name}
storage: {storage}
configuration:
  spark.sql.shuffle.partitions: "2"
  # Settings of `barnabas pipelines`; Spark's own `spark-pipelines` ignores them.
  barnabas.pipelines.trigger: 1 second
  barnabas.pipelines.refresh: 10 seconds
libraries:
  - glob:
      include: transformations/**
"""

_ORDERS: Final = '''"""Orders come in as JSON. Large ones go to a topic of their own, all of them to a table."""

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.active()
SERVERS = "{servers}"


@dp.temporary_view
def orders():
    records = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("subscribe", "{name}-orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    order = sf.from_json(sf.col("value").cast("string"), "id long, customer string, amount double")
    return records.select("timestamp", order.alias("order")).select("timestamp", "order.*")


@dp.table(comment="Every order, as it came in")
def order_log():
    return spark.readStream.table("orders")


dp.create_sink("large_orders", "barnabas", {{"kafka.bootstrap.servers": SERVERS, "topic": "{name}-large-orders"}})


@dp.append_flow(target="large_orders")
def find_large_orders():
    large = spark.readStream.table("orders").where("amount >= 100")
    value = sf.to_json(sf.struct("id", "customer", "amount"))
    return large.select(sf.col("customer").alias("key"), value.alias("value"))
'''

_TOTALS: Final = """-- A materialized view is computed anew from the table order_log.
CREATE MATERIALIZED VIEW customer_totals COMMENT 'What each customer has ordered' AS
SELECT customer, count(*) AS orders, sum(amount) AS amount
FROM order_log
GROUP BY customer;
"""

_README: Final = """# {name}

```
barnabas serve --data-dir data                     # a broker, unless there is one at {servers}
barnabas topics create {name}-orders --partitions 2
barnabas produce {name}-orders < orders.jsonl
barnabas pipelines run --once                      # reads all orders that there are, and ends
barnabas consume {name}-large-orders --until-end --isolation-level read_committed
barnabas pipelines run --continuous                # until Ctrl-C
```

`spark-pipelines run` (`pip install 'pyspark[pipelines]'`) runs the same files once.
"""

_DATA: Final = """{{"id": 1, "customer": "ada", "amount": 12.5}}
{{"id": 2, "customer": "ben", "amount": 140.0}}
{{"id": 3, "customer": "ada", "amount": 230.0}}
{{"id": 4, "customer": "cyd", "amount": 7.25}}
{{"id": 5, "customer": "ben", "amount": 99.99}}
"""

FILES: Final[Mapping[str, str]] = {
    "spark-pipeline.yml": _SPEC,
    "transformations/orders.py": _ORDERS,
    "transformations/customer_totals.sql": _TOTALS,
    "orders.jsonl": _DATA,
    "README.md": _README,
}


def write_project(directory: Path, name: str, servers: str) -> list[Path]:
    """Write the project to a directory that does not exist yet. Returns the files. Raises PipelineError."""
    if directory.exists() and any(directory.iterdir()):
        raise PipelineError(f"{directory} exists already; choose another name")
    storage = (directory / "storage").resolve()
    storage.mkdir(parents=True)
    written = []
    for path, text in FILES.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(name=name, servers=servers, storage=storage.as_uri()), encoding="utf-8")
        written.append(file)
    return written
