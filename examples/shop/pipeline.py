"""The pipeline, one Spark program with six queries: copy from here.

    orders in PostgreSQL   -> topic shop.public.orders  \
                                                          join -> topic order-report -> Delta table, table in MariaDB
    customers in MariaDB   -> topic shop.shop.customers /
                                                        \\-> a copy of the customers in PostgreSQL

    python -m examples.shop.pipeline FOLDER once|continuous

FOLDER/shop.json has the addresses. Staging directories and checkpoints are under FOLDER. Every query is exactly once:
the program may be killed at any moment, and continues when it is started again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import DataStreamWriter, StatefulProcessor, StatefulProcessorHandle

from barnabas.spark.environment import prepare_environment

ORDERS, CUSTOMERS, REPORT = "shop.public.orders", "shop.shop.customers", "order-report"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
WITHOUT_SCHEMAS = {"key.converter.schemas.enable": False, "value.converter.schemas.enable": False}
ORDER = "struct<id: int, customer_id: int, cents: int, state: string>"
CUSTOMER = "struct<id: int, name: string, country: string>"


class Addresses(Struct, frozen=True):
    """Where the servers are: ports of this machine."""

    postgres: int
    mariadb: int
    broker: str


def start_session() -> SparkSession:
    prepare_environment()
    builder = SparkSession.builder.master("local[2]").appName("shop")
    options = {
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": False,
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


class Pipeline:
    """The six queries."""

    def __init__(self, spark: SparkSession, folder: Path, at: Addresses) -> None:
        self._spark = spark
        self._folder = folder
        self._at = at

    # -- databases -> topics

    def orders(self) -> DataStreamWriter:
        """The rows of orders, and then each change of them, as Debezium's events."""
        rows = self._read(
            "barnabas.postgres",
            {
                "database.port": self._at.postgres,
                "database.user": "postgres",
                "database.dbname": "postgres",
                "table.include.list": "public.orders",
                "slot.name": "shop",
                "publication.name": "shop",
            },
        )
        return self._to_topic(rows, "orders")

    def customers(self) -> DataStreamWriter:
        rows = self._read(
            "barnabas.mariadb",
            {
                "database.port": self._at.mariadb,
                "database.user": "barnabas",
                "database.password": "barnabas",
                "table.include.list": "shop.customers",
            },
        )
        return self._to_topic(rows, "customers")

    def _read(self, source: str, options: dict[str, Any]) -> DataFrame:
        reader = self._spark.readStream.format(source).options(**options)
        reader = reader.option("database.hostname", "127.0.0.1").option("topic.prefix", "shop")
        return reader.option("stagingLocation", str(self._folder / "staging" / source)).load()

    # -- a join of two tables that both change

    def report(self) -> DataStreamWriter:
        """Each order with its customer: a record whenever one of the two changes, and a tombstone after a delete."""
        events = self._events(ORDERS, ORDER, "purchase").unionByName(
            self._events(CUSTOMERS, CUSTOMER, "customer"), allowMissingColumns=True
        )
        joined = events.groupBy("customer_id").transformWithState(
            statefulProcessor=JoinCustomer(),
            outputStructType="order_id int, name string, country string, cents int, state string, deleted boolean",
            outputMode="Append",
            timeMode="None",
        )
        row = sf.to_json(sf.struct("order_id", "name", "country", "cents", "state"))
        records = joined.select(
            sf.lit(REPORT).alias("topic"),
            sf.to_json(sf.struct("order_id")).alias("key"),
            sf.when(~sf.col("deleted"), row).alias("value"),
        )
        return self._to_topic(records, "report")

    def _events(self, topic: str, row_type: str, name: str) -> DataFrame:
        """The changes of a table: the row before or after, and the customer that it belongs to."""
        kind = f"payload struct<before: {row_type}, after: {row_type}, op: string>"
        event = sf.from_json(sf.col("value").cast("string"), kind)["payload"].alias("event")
        records = self._topic(topic).where("value IS NOT NULL").select("offset", event)
        rows = records.selectExpr("offset", "coalesce(event.after, event.before) AS row", "event.op = 'd' AS deleted")
        customer = "row.customer_id" if name == "purchase" else "row.id"
        return rows.selectExpr(f"{customer} AS customer_id", f"row AS {name}", "deleted", "offset")

    # -- topics -> tables

    def delta(self) -> DataStreamWriter:
        options = {"path": str(self._folder / "report"), "auto.create": True}
        return self._to_tables(self._topic(REPORT), "barnabas.delta", "delta", WITHOUT_SCHEMAS | options)

    def mariadb(self) -> DataStreamWriter:
        options = {
            "connection.url": f"jdbc:mariadb://127.0.0.1:{self._at.mariadb}/shop",
            "connection.user": "barnabas",
            "connection.password": "barnabas",
            "dbtable": "order_report",
        }
        return self._to_tables(self._topic(REPORT), "barnabas.mariadb", "mariadb", WITHOUT_SCHEMAS | options)

    def postgres(self) -> DataStreamWriter:
        options = {
            "connection.url": f"jdbc:postgresql://127.0.0.1:{self._at.postgres}/postgres",
            "connection.user": "postgres",
            "dbtable": "customers",
            "transforms": "unwrap",
            "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        }
        return self._to_tables(self._topic(CUSTOMERS), "barnabas.postgres", "postgres", options)

    def _topic(self, name: str) -> DataFrame:
        reader = self._spark.readStream.format("barnabas").option("kafka.bootstrap.servers", self._at.broker)
        return reader.option("subscribe", name).option("startingOffsets", "earliest").load()

    def _to_topic(self, records: DataFrame, name: str) -> DataStreamWriter:
        writer = records.writeStream.format("barnabas").option("kafka.bootstrap.servers", self._at.broker)
        return self._named(writer, name)

    def _to_tables(self, records: DataFrame, sink: str, name: str, options: dict[str, Any]) -> DataStreamWriter:
        """A record changes the row of its key, and a record without a value deletes it."""
        writer = records.writeStream.format(sink).option("insert.mode", "upsert").option("pk.mode", "record_key")
        for part in ("key", "value"):
            writer = writer.option(f"{part}.converter", "JsonConverter")
        return self._named(writer.option("delete.enabled", True).options(**options), name)

    def _named(self, writer: DataStreamWriter, name: str) -> DataStreamWriter:
        return writer.queryName(name).option("checkpointLocation", str(self._folder / "checkpoints" / name))


class JoinCustomer(StatefulProcessor):
    """State, for each customer: the customer's row, and the orders by their ids."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.customer = handle.getValueState("customer", "name string, country string")
        self.orders = handle.getMapState("orders", "id int", "cents int, state string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in sorted(rows, key=lambda row: (row.customer is None, row.offset)):
            if row.customer is not None:
                yield from self._on_customer(row)
            else:
                yield from self._on_order(row)

    def _on_customer(self, row: Row) -> Iterator[Row]:
        if row.deleted:
            self.customer.clear()
        else:
            self.customer.update((row.customer["name"], row.customer["country"]))
        for (order_id,), (cents, state) in list(self.orders.iterator()):
            yield self._joined(order_id, cents, state)

    def _on_order(self, row: Row) -> Iterator[Row]:
        order = row.purchase
        if row.deleted:
            self.orders.removeKey((order["id"],))
            yield _row(order["id"])
        else:
            self.orders.updateValue((order["id"],), (order["cents"], order["state"]))
            yield self._joined(order["id"], order["cents"], order["state"])

    def _joined(self, order_id: int, cents: int, state: str) -> Row:
        """The order with its customer; deleted while there is no customer."""
        customer = self.customer.get() if self.customer.exists() else None
        if customer is None:
            return _row(order_id)
        return Row(order_id=order_id, name=customer[0], country=customer[1], cents=cents, state=state, deleted=False)

    def close(self) -> None:
        pass


def _row(deleted: int) -> Row:
    """The row of an order that is not in the report."""
    return Row(order_id=deleted, name=None, country=None, cents=None, state=None, deleted=True)


def main(folder: Path, mode: str) -> None:
    addresses = json.loads((folder / "shop.json").read_text())
    spark = start_session()
    pipeline = Pipeline(spark, folder, Addresses(**addresses))
    steps = (
        (pipeline.orders, pipeline.customers),
        (pipeline.report,),
        (pipeline.delta, pipeline.mariadb, pipeline.postgres),
    )
    builders = [build for step in steps for build in step]
    if mode == "continuous":
        run_for_ever(builders)
    for build in builders:
        build().trigger(availableNow=True).start().awaitTermination()
    spark.stop()


def run_for_ever(builders: Sequence[Callable[[], DataStreamWriter]]) -> None:
    """Start the queries one after the other, and each one again that ends, such as when its database was down."""
    running: dict[int, Any] = {}
    while True:
        for number, build in enumerate(builders):
            query = running.get(number)
            if query is not None and query.isActive:
                continue
            if query is not None:
                print(f"{query.name} ended, and is started again: {query.exception()}", flush=True)
            query = running[number] = build().trigger(processingTime="500 milliseconds").start()
            while query.isActive and query.lastProgress is None:
                time.sleep(0.2)
        time.sleep(0.5)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
