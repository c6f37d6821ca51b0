"""Orders, each with its customer and its country, from two compacted topics.

Kafka Streams: orders.join(customers: GlobalKTable, (k, o) -> o.customer, ...)
                     .leftJoin(countries: GlobalKTable, (k, o) -> o.country, ...).to("orders-enriched")

Each table is as it was when the query started; Spark does not plan the tables of a streaming query again. That suits
tables that change seldom: restart the query to read them anew. Where an order must meet the newest value,
`ktable_join.py` keeps the table in state.
"""

from __future__ import annotations

from pathlib import Path

from examples.streams.topics import document, fields, read_stream, read_table, write_stream
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import DataStreamWriter

INPUTS, OUTPUT = ("orders", "customers", "countries"), "orders-enriched"


def enrich(orders: DataFrame, customers: DataFrame, countries: DataFrame) -> DataFrame:
    order = orders.select("key", fields("customer string, amount long").alias("order")).select("key", "order.*")
    customer = customers.select(sf.col("key").alias("customer"), fields("name string, country string").alias("c"))
    country = countries.select(sf.col("key").alias("country"), sf.col("value").alias("country_name"))
    return (
        order.join(customer, "customer")
        .select("key", "amount", "c.name", "c.country")
        .join(sf.broadcast(country), "country", "left")
        .select("key", document("amount", "name", "country_name"))
    )


def build(spark: SparkSession, servers: str, checkpoint: Path) -> DataStreamWriter:
    orders, customers, countries = INPUTS
    tables = (read_table(spark, servers, topic) for topic in (customers, countries))
    enriched = enrich(read_stream(spark, servers, orders), *tables)
    return write_stream(enriched, servers, OUTPUT, checkpoint)
