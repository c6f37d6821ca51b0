"""Two databases under concurrent writers, captured into topics of any Kafka; everything is killed in turn.

Then the topics, replayed, are the tables row by row, with each change once and in order. With copies, each database is
also copied into the other one through the topics, and the copies are the tables, too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.databases import MariaDbServer, PostgresServer
from tests.system.connectors.driver_process import Driver
from tests.system.connectors.mysql_sources import InstalledMySql
from tests.system.connectors.replays import differences, read_topic, replay
from tests.system.connectors.shops import COPIES, MariaDbShop, MySqlShop, PostgresShop, Shop, ShopWriters

RECORD_BYTES_MAX: Final = 64 << 20
"""An update of a large value has the old and the new one, and base64 adds a third."""

BROKER_SETTINGS: Final = ("transaction.two.phase.commit.enable=true", f"message.max.bytes={RECORD_BYTES_MAX}")


class Broker(Protocol):
    """A broker that keeps its address and its data when it is killed and started again."""

    def start(self) -> None: ...

    def kill(self) -> None: ...


def create_topics(servers: str, shops: Sequence[Shop]) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    config = {"max.message.bytes": str(RECORD_BYTES_MAX)}
    # An event of PostgreSQL may refer to a large value of the event before, also when the key, and so the partition,
    # changes. A reader needs one partition for that.
    partitions = {"pg": 1, "my": 2}
    topics = [
        NewTopic(shop.topic(table), num_partitions=partitions[shop.name], config=config)
        for shop in shops
        for table in shop.tables
    ]
    for created in admin.create_topics(topics).values():
        created.result(60)


def capture_query(shop: Shop, folder: Path, servers: str, schemas: str) -> dict[str, object]:
    write = {
        "format": "barnabas",
        "kafka.bootstrap.servers": servers,
        "kafka.max.request.size": str(RECORD_BYTES_MAX),
        "includeHeaders": "true",
    }
    read = shop.options(folder)
    for part in ("key", "value"):
        read[f"{part}.converter.schemas.enable"] = schemas
    return {"name": shop.name, "read": read, "write": write}


def copy_query(shop: Shop, other: Shop, servers: str) -> dict[str, object]:
    """From the topics of a shop into tables of the other one."""
    read = {
        "format": "barnabas",
        "kafka.bootstrap.servers": servers,
        "subscribe": ",".join(map(shop.topic, shop.tables)),
        "startingOffsets": "earliest",
    }
    return {"name": f"{shop.name}-{other.name}", "read": read, "write": other.sink_options()}


def check_copies(shop: Shop, other: Shop) -> None:
    for table, columns in COPIES.items():
        found, wanted = other.values(f"copies.{table}", list(columns)), shop.values(f"shop.{table}", list(columns))
        wrong = differences(found, wanted)
        assert not wrong, (shop.name, table, wrong)


def check_topics(servers: str, shop: Shop, writers: ShopWriters) -> None:
    for table, columns in shop.tables.items():
        rows = replay(read_topic(servers, shop.topic(table)), columns)
        wanted = shop.rows(table)
        assert rows.keys() == wanted.keys()
        for key, row in wanted.items():
            found = {name: rows[key].get(name) for name in row}  # a column that was added since then is null
            assert found == row, (shop.name, table, key)
    for kind in ("insert", "update", "updates", "delete", "key", "savepoint", "toast", "ddl", "large"):
        assert writers.done[kind], f"the writers of {shop.name} have made no change of the kind {kind}"


def run(
    folder: Path, broker: Broker, servers: str, faults: Sequence[str], *,
    seed: int, large: int, pause_s: float, copies: bool, mysql: bool = False,
) -> None:  # fmt: skip
    """Capture while the faults happen, and check all topics. The broker runs already, and listens on `servers`.

    With `mysql`, a server of MySQL takes the place of MariaDB.
    """
    rng = random.Random(seed)
    began = time.monotonic()
    with PostgresServer(["deadlock_timeout=50ms"]) as postgres, InstalledMySql() if mysql else MariaDbServer() as other:
        shops: tuple[Shop, ...] = PostgresShop(postgres), MySqlShop(other) if mysql else MariaDbShop(other)
        create_topics(servers, shops)
        for shop in shops:
            shop.create(100)
            shop.create_copies()
        failures: list[Exception] = []
        writers = [ShopWriters(shop, seed, 150, large, failures) for shop in shops]
        schemas = "true" if copies else "false"  # a sink makes events flat by their schemas
        queries = [capture_query(shop, folder, servers, schemas) for shop in shops]
        pairs = tuple(permutations(shops)) if copies else ()
        queries += [copy_query(shop, copy, servers) for shop, copy in pairs]
        driver = Driver(folder, queries)
        try:
            for one in writers:
                one.start(2)
            driver.start("continuous")
            driver.wait_for_batches(2, failures)
            for number, fault in enumerate(faults):
                time.sleep(rng.random() * pause_s)  # the moment of the kill is at random
                match fault:
                    case "driver":
                        driver.kill()
                        driver.start("continuous")
                    case "starting driver":
                        driver.kill()
                        driver.start("continuous")
                        time.sleep(rng.random() * 20)  # a random moment while the driver starts
                        driver.kill()
                        driver.start("continuous")
                    case "broker":
                        broker.kill()
                        time.sleep(rng.random() * pause_s)  # how long it is away is at random
                        broker.start()
                    case _:
                        server = {"postgres": postgres, "mariadb": other, "mysql": other}[fault]
                        server.kill()
                        time.sleep(rng.random() * pause_s)  # how long it is away is at random
                        server.start()
                driver.wait_for_batches(2, failures)
                print(f"{time.monotonic() - began:6.0f} s  {number + 1:3}  {fault}", flush=True)
            for one in writers:
                one.stop()
            driver.finish()
        finally:
            driver.kill()
        for one in writers:
            check_topics(servers, one.shop, one)
        for shop, copy in pairs:
            check_copies(shop, copy)
    print(f"{time.monotonic() - began:6.0f} s  equal: {[dict(one.done) for one in writers]}", flush=True)
