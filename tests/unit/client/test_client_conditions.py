"""What every public method of every client does without a broker, after its broker has stopped, closed, forked, from
two threads and cancelled, as `client_conditions.py` says."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from barnabas import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from barnabas.client.blocking import ShareConsumer
from barnabas.client.errors import BrokerUnreachableError, ClientClosedError, RequestTimeoutError
from barnabas.core.errors import BarnabasError, KafkaError
from barnabas.registry.client import RegistryClient
from barnabas.testing.embedded import EmbeddedBroker
from tests.unit.client.client_conditions import CALLS, NOT_CALLED, T0, UNREACHABLE, Call, expected

FAST: Final[dict[str, Any]] = {
    "request_timeout_ms": 200,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 20,
}
CLASSES: Final = {
    "Producer": Producer,
    "Transactions": Producer,
    "Consumer": Consumer,
    "ShareConsumer": ShareConsumer,
    "Admin": Admin,
    "RegistryClient": RegistryClient,
}
NOWHERE: Final = "127.0.0.1:1"
"""Nothing listens on this port."""


def make(client: str, servers: str, *, timeout_ms: int = 250) -> Any:
    fast = {"bootstrap_servers": servers, **FAST}
    sending = {**fast, "linger_ms": 0, "max_block_ms": timeout_ms, "delivery_timeout_ms": max(timeout_ms, 400)}
    match client:
        case "Producer":
            return Producer(**sending)
        case "Transactions":
            return Producer(**sending, transactional_id="tx")
        case "Consumer":
            consumer = Consumer(**fast, group_id="g", default_api_timeout_ms=timeout_ms)
            consumer.assign([T0])
            return consumer
        case "ShareConsumer":
            sharing = ShareConsumer(**fast, group_id="s", default_api_timeout_ms=timeout_ms)
            sharing.subscribe(["t"])
            return sharing
        case "Admin":
            return Admin(**fast, default_api_timeout_ms=timeout_ms)
        case _:
            return RegistryClient(f"http://{servers}", timeout_ms=timeout_ms)


def outcome(call: Call, client: Any) -> str:
    """The outcome of a call, in the words of the table. Every error has a text."""
    try:
        result = call(client)
    except (BrokerUnreachableError, RequestTimeoutError) as error:
        assert str(error)
        return UNREACHABLE
    except (BarnabasError, TimeoutError) as error:
        assert str(error), repr(error)
        return type(error).__name__
    if isinstance(result, Mapping) and result and all(isinstance(item, KafkaError) for item in result.values()):
        return "errors"
    return "returns"


def close(client: Any) -> None:
    if isinstance(client, RegistryClient):
        client.close()
    else:
        client.close(300)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", num_partitions=1)
        yield broker.bootstrap_servers


@pytest.mark.parametrize("client", CALLS)
def test_every_public_method_has_a_row(client: str) -> None:
    """The methods that only a loop calls are not public in the blocking clients."""
    public = {
        name for name in dir(CLASSES[client]) if not name.startswith("_") and callable(getattr(CLASSES[client], name))
    }
    rows = {*CALLS[client], *NOT_CALLED}
    if CLASSES[client] is Producer:
        rows |= {*CALLS["Producer"], *CALLS["Transactions"]}
    assert public <= rows


@pytest.mark.parametrize("client", CALLS)
def test_without_a_broker(client: str) -> None:
    one = make(client, NOWHERE)
    got = {method: outcome(call, one) for method, call in CALLS[client].items()}
    got["close"] = outcome(close, one)
    assert got == {method: expected(client, method, 0) for method in got}


@pytest.mark.parametrize("client", [name for name in CALLS if name not in ("RegistryClient", "Transactions")])
def test_with_a_broker_that_has_stopped(client: str) -> None:
    with EmbeddedBroker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("t", num_partitions=1)
        one = make(client, broker.bootstrap_servers)
        if client == "Producer":
            one._client._max_block_ms = 20_000
            one.send("t", b"v").result(20)
            one._client._max_block_ms = 250
        elif client in ("Consumer", "ShareConsumer"):
            one.poll(500)
        else:
            one.list_topics(timeout_ms=20_000)
    got = {method: outcome(call, one) for method, call in CALLS[client].items()}
    got["close"] = outcome(close, one)
    for method, result in got.items():
        assert result in expected(client, method, 1).split(" or "), method


@pytest.mark.parametrize("client", CALLS)
def test_a_closed_client(client: str) -> None:
    one = make(client, NOWHERE)
    close(one)
    close(one)
    for method, call in CALLS[client].items():
        with pytest.raises(ClientClosedError, match="is closed; create a new one"):
            pytest.fail(f"{method} returned {call(one)}")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("client", CALLS)
def test_a_client_in_a_forked_process(client: str) -> None:
    """Nothing hangs, and nothing is sent over the connections of the parent."""
    one = make(client, NOWHERE)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            got = {method: outcome(call, one) for method, call in CALLS[client].items()}
            got["close"] = outcome(close, one)
            os.write(writer, json.dumps(got).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told: dict[str, str] = json.loads(pipe.read())
    os.waitpid(child, 0)
    close(one)
    assert told.pop("close") == "returns"
    assert told == dict.fromkeys(CALLS[client], "ForkedError")


@pytest.mark.parametrize("client", ["Producer", "Consumer", "ShareConsumer", "Admin"])
def test_two_threads(client: str, servers: str) -> None:
    """Both threads get values or errors of Kafka, and none gets an error of Python or waits for ever."""
    one = make(client, servers, timeout_ms=20_000)
    results: list[Any] = []

    def run() -> None:
        try:
            results.append({method: outcome(call, one) for method, call in CALLS[client].items()})
        except BaseException as error:  # noqa: BLE001 - the thread's error is the test's result
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    close(one)
    assert [type(result) for result in results] == [dict, dict], results


@pytest.mark.parametrize("kind", [AsyncProducer, AsyncConsumer, AsyncAdmin])
async def test_a_cancelled_call_leaves_a_client_that_can_be_closed(kind: Any) -> None:
    one = kind(bootstrap_servers=NOWHERE, **FAST)
    before = asyncio.all_tasks()
    match one:
        case AsyncProducer():
            calls = [one.send("t", b"v"), one.send_and_wait("t", b"v"), one.partitions_for("t")]
        case AsyncConsumer():
            one.assign([T0])
            calls = [one.poll(60_000), one.position(T0), one.end_offsets([T0])]
        case _:
            calls = [one.list_topics(), one.describe_cluster(), one.create_topic("t")]
    tasks = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ended] == [asyncio.CancelledError] * len(tasks)
    await one.close(1_000)
    assert asyncio.all_tasks() == before
    with pytest.raises(ClientClosedError):
        await (one.list_topics() if kind is AsyncAdmin else one.partitions_for("t"))
