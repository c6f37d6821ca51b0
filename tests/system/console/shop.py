"""A small cluster with life in it, for the tests of the console in a browser: broker, registry, producers, groups."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.client import Admin, Consumer, Producer
from barnabas.console.access.masking import MaskRule
from barnabas.console.server import ConsoleServer
from barnabas.console.settings import ConsoleSettings, SamplingLimits
from barnabas.registry import AvroSerializer, RegistryClient
from barnabas.registry.server import RegistryServer
from barnabas.testing import EmbeddedBroker

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "total", "type": "double"},
    ],
}
ORDER_2 = {**ORDER, "fields": [*ORDER["fields"], {"name": "currency", "type": "string", "default": "EUR"}]}  # type: ignore[misc]
TOPICS = {"flights": 4, "orders": 3, "payments": 2, "customers": 1}
CARRIERS = ("UA", "AA", "DL", "B6", "WN")


class Shop:
    """Produces and consumes in threads until it is closed."""

    def __init__(self, bootstrap_servers: str, registry_url: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._registry_url = registry_url
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self.produced = 0

    def open(self) -> None:
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            for name, partitions in TOPICS.items():
                configs: dict[str, str | None] = {"cleanup.policy": "compact"} if name == "customers" else {}
                admin.create_topic(name, partitions, 1, configs)
        with (
            RegistryClient(self._registry_url) as registry,
            Producer(
                bootstrap_servers=self.bootstrap_servers, value_serializer=AvroSerializer(registry, json.dumps(ORDER))
            ) as producer,
        ):
            for number in range(200):
                order = {"id": number, "customer": f"c{number % 17}", "total": number * 1.25}
                producer.send("orders", order, key=f"order-{number}".encode())
            producer.flush()
            AvroSerializer(registry, json.dumps(ORDER_2)).prepare("orders")
        with Producer(bootstrap_servers=self.bootstrap_servers) as producer:
            for number in range(40):
                value = {
                    "name": f"Customer {number}",
                    "email": f"c{number}@example.com",
                    "card": f"41111111{number:08}",
                }
                producer.send("customers", json.dumps(value).encode(), key=f"c{number}".encode())
            producer.flush()
        for run in (self._produce, self._consume, self._hold_a_transaction):
            thread = threading.Thread(target=run, name=f"shop {run.__name__}")
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join(30)

    def _produce(self) -> None:
        rng = random.Random(7)
        with Producer(bootstrap_servers=self.bootstrap_servers, client_id="flight-feed") as producer:
            while not self._closing.wait(0.1):
                for _ in range(rng.randrange(20, 120)):
                    self.produced += 1
                    value = {
                        "flight": self.produced,
                        "carrier": rng.choice(CARRIERS),
                        "route": {"from": rng.choice(("EWR", "JFK", "LGA")), "to": rng.choice(("LAX", "ORD", "SFO"))},
                        "delay": rng.randrange(-10, 90),
                    }
                    producer.send(
                        "flights",
                        json.dumps(value).encode(),
                        key=str(value["carrier"]).encode(),
                        headers=[("source", b"tower"), ("trace", b"%016x" % rng.getrandbits(64))],
                    )
                producer.flush()

    def _consume(self) -> None:
        with Consumer(
            bootstrap_servers=self.bootstrap_servers,
            group_id="delays",
            client_id="delay-board",
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.subscribe(["flights"])
            while not self._closing.wait(0.2):
                consumer.poll(200, max_records=100)
                consumer.commit()

    def _hold_a_transaction(self) -> None:
        with Producer(bootstrap_servers=self.bootstrap_servers, transactional_id="billing-1") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("payments", b'{"order": 17, "state": "AUTHORIZED"}', key=b"17").result()
            self._closing.wait()
            producer.abort_transaction()


@contextmanager
def in_thread(*servers: Callable[[dict[str, Any]], Any]) -> Iterator[dict[str, Any]]:
    """Run servers, one after the other's start, on an event loop of their own. Each is built from those before it."""
    running: dict[str, Any] = {}
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    failures: list[BaseException] = []

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for build in servers:
                server = build(running)
                started = asyncio.Event()
                tasks.create_task(server.run(lambda _, started=started: started.set()))
                await started.wait()
                running[type(server).__name__] = server
            ready.set()
            await stop.wait()
            for server in reversed(running.values()):
                server.stop()

    def run() -> None:
        try:
            loop.run_until_complete(main())
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            failures.append(error)
            ready.set()
        finally:
            loop.close()

    thread = threading.Thread(target=run, name="servers")
    thread.start()
    assert ready.wait(60)
    try:
        if failures:
            raise failures[0]
        yield running
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(30)
    assert not failures, failures


@contextmanager
def shop_console(**settings: Any) -> Iterator[tuple[str, Shop]]:
    """(the console's URL, the shop)"""
    with EmbeddedBroker() as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers}

        def console(running: dict[str, Any]) -> ConsoleServer:
            return ConsoleServer(
                ConsoleSettings(
                    client,
                    listener="http://127.0.0.1:0",
                    registry_url=running["RegistryServer"].url,
                    sampling=SamplingLimits(interval_s=0.5),
                    masks=(
                        MaskRule.parse("customers:value.email=replace"),
                        MaskRule.parse("customers:value.card=last4"),
                    ),
                    **settings,
                )
            )

        with in_thread(lambda _: RegistryServer(client, listener="http://127.0.0.1:0"), console) as running:
            shop = Shop(broker.bootstrap_servers, running["RegistryServer"].url)
            shop.open()
            try:
                yield running["ConsoleServer"].url, shop
            finally:
                shop.close()
