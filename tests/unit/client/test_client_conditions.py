"""What every public method of every client does without a broker, after its broker has stopped or vanished in the
middle of the call, closed, forked, from two threads, cancelled and with wrong types, as `client_conditions.py` says;
and what is said about a client that is not closed."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pytest

from barnabas import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from barnabas.client.blocking import ShareConsumer
from barnabas.client.errors import BrokerUnreachableError, ClientClosedError, RequestTimeoutError
from barnabas.client.loop_thread import LoopThread
from barnabas.client.share.consumer import AsyncShareConsumer
from barnabas.core.errors import BarnabasError, KafkaError
from barnabas.protocol.transport.http.server import http_api
from barnabas.registry.api.app import RegistryApp
from barnabas.registry.client import AsyncRegistryClient, RegistryClient
from barnabas.registry.service import Registry
from barnabas.testing.embedded import EmbeddedBroker
from tests.golden.registry.conversation import MemoryLog, MemoryTopic
from tests.unit.client.client_conditions import CALLS, NOT_CALLED, T0, UNREACHABLE, Call, expected
from tests.unit.client.cut_proxy import CutProxy

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
ASYNC_CLASSES: Final = {
    "Producer": AsyncProducer,
    "Transactions": AsyncProducer,
    "Consumer": AsyncConsumer,
    "ShareConsumer": AsyncShareConsumer,
    "Admin": AsyncAdmin,
    "RegistryClient": AsyncRegistryClient,
}
OF_KAFKA: Final = [name for name in CALLS if name != "RegistryClient"]
NOWHERE: Final = "127.0.0.1:1"
"""Nothing listens on this port."""
REFUSED_MS: Final = 50
"""The time of a call whose connections are refused: each of the sixty calls of an Admin tries for so long."""


def make(client: str, servers: str, *, timeout_ms: int = 150) -> Any:
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


@contextmanager
def running_registry() -> Iterator[str]:
    """A registry whose topic is in memory. Yields its address."""
    thread = LoopThread("registry")
    server = http_api("127.0.0.1", 0, RegistryApp(Registry(MemoryLog(MemoryTopic()))))
    thread.run(server.bind)
    serving = asyncio.run_coroutine_threadsafe(server.serve(), thread.loop)
    try:
        yield server.url.removeprefix("http://")
    finally:
        thread.loop.call_soon_threadsafe(server.stop)
        serving.result(20)
        thread.close()


@contextmanager
def running_broker(proxy: CutProxy) -> Iterator[None]:
    """A broker with the topic `t` behind a proxy, whose address the broker advertises."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        proxy.target = free.getsockname()
    address = f"127.0.0.1:{proxy.port}"
    listener = f"PLAINTEXT://127.0.0.1:{proxy.target[1]}"
    with EmbeddedBroker({"advertised.listeners": f"PLAINTEXT://{address}"}, listener=listener):
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topic("t", num_partitions=1)
        yield


@contextmanager
def patient(client: Any) -> Iterator[Any]:
    """The time-out of a producer is long enough for a busy machine while the test prepares the next call."""
    before = client._client._max_block_ms
    client._client._max_block_ms = 20_000
    yield client
    client._client._max_block_ms = before


def warm_up(client: str, one: Any, method: str) -> Any:
    """Let a client do something, so that it has connections, metadata and (for a transaction) the right state."""
    match client:
        case "Producer":
            with patient(one):
                one.send("t", b"v").result(20)
        case "Transactions":
            with patient(one):
                if method != "init_transactions":
                    one.init_transactions()
                if method not in ("init_transactions", "begin_transaction", "transaction", "complete_transaction"):
                    one.begin_transaction()
                    one.send("t", b"v").result(20)
        case "Consumer" | "ShareConsumer":
            one.poll(150)
        case "Admin":
            one.list_topics(timeout_ms=20_000)
        case _:
            one.subjects()


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
    one = make(client, NOWHERE, timeout_ms=REFUSED_MS if client == "Admin" else 150)
    got = {method: outcome(call, one) for method, call in CALLS[client].items()}
    got["close"] = outcome(close, one)
    assert got == {method: expected(client, method, 0) for method in got}


@pytest.mark.parametrize("client", OF_KAFKA)
def test_with_a_broker_that_has_stopped(client: str) -> None:
    with EmbeddedBroker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("t", num_partitions=1)
        one = make(client, broker.bootstrap_servers, timeout_ms=REFUSED_MS if client == "Admin" else 150)
        warm_up("Producer" if client == "Producer" else client, one, "init_transactions")
    got = {method: outcome(call, one) for method, call in CALLS[client].items()}
    got["close"] = outcome(close, one)
    for method, result in got.items():
        assert result in expected(client, method, 1).split(" or "), method


def test_with_a_registry_that_has_stopped() -> None:
    with running_registry() as address:
        one = make("RegistryClient", address)
        one.subjects()
    got = {method: outcome(call, one) for method, call in CALLS["RegistryClient"].items()}
    close(one)
    assert got == {method: expected("RegistryClient", method, 1) for method in got}


@pytest.mark.parametrize("client", CALLS)
def test_with_a_broker_that_vanishes_in_the_middle_of_the_call(client: str) -> None:
    """The request has been sent, and no response comes. The error says so before the time of the call is over, or the
    call goes on in the background, as `client_conditions.py` says."""
    with CutProxy() as proxy:
        address = f"127.0.0.1:{proxy.port}"
        if client == "RegistryClient":
            with running_registry() as registry:
                host, port = registry.split(":")
                proxy.target = host, int(port)
                got = in_the_middle(client, proxy, address)
        else:
            with running_broker(proxy):
                got = in_the_middle(client, proxy, address)
    for method, result in got.items():
        assert result in expected(client, method, 2).split(" or "), method


def in_the_middle(client: str, proxy: CutProxy, address: str) -> dict[str, str]:
    got = {}
    one = make(client, address)
    for method, call in CALLS[client].items():
        proxy.restore()
        if client == "Transactions":  # each call belongs to another state of a transaction
            close(one)
            one = make(client, address)
        warm_up(client, one, method)
        proxy.cut_at_next_request()
        got[method] = outcome(call, one)
    got["close"] = outcome(close, one)
    return got


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


@pytest.mark.parametrize("client", CALLS)
def test_two_threads(client: str, servers: str) -> None:
    """Both threads get values or errors of Kafka, and none gets an error of Python or waits for ever."""
    if client != "RegistryClient":
        use_from_two_threads(client, servers)
        if client == "Transactions":  # of other tests, committed() would wait for the end of the open transaction
            following = make(client, servers, timeout_ms=20_000)
            following.init_transactions()
            close(following)
        return
    with running_registry() as address:
        use_from_two_threads(client, address)


def use_from_two_threads(client: str, address: str) -> None:
    one = make(client, address, timeout_ms=20_000)
    calls = {method: call for method, call in CALLS[client].items() if method != "getone"}  # it wakes the other thread
    results: list[Any] = []

    def run() -> None:
        try:
            results.append({method: outcome(call, one) for method, call in calls.items()})
        except BaseException as error:  # noqa: BLE001 - the thread's error is the test's result
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    close(one)
    assert [type(result) for result in results] == [dict, dict], results


def make_async(client: str) -> Any:
    match client:
        case "RegistryClient":
            return AsyncRegistryClient(f"http://{NOWHERE}")
        case "Consumer" | "ShareConsumer":
            one = ASYNC_CLASSES[client](bootstrap_servers=NOWHERE, **FAST, group_id="g")
            one.assign([T0]) if client == "Consumer" else one.subscribe(["t"])
            return one
        case "Transactions":
            return AsyncProducer(bootstrap_servers=NOWHERE, **FAST, transactional_id="tx")
        case _:
            return ASYNC_CLASSES[client](bootstrap_servers=NOWHERE, **FAST)


WITHOUT_WAITING: Final = {
    "flush", "begin_transaction", "send_offsets_to_transaction", "prepare_transaction", "hand_over_transaction",
    "complete_transaction",
    "commit_transaction", "abort_transaction", "unsubscribe", "commit", "dependencies",
}  # fmt: skip
"""Asynchronous methods that end at once here: there is nothing to send, or the transaction's state forbids the call."""
NOT_ASYNC: Final = {
    "subscribe": "several calls",
    "getone": "several calls",
    "wait_for": "waits in a thread",
    "transaction": "a context manager",
}


@pytest.mark.parametrize("client", CALLS)
async def test_a_cancelled_call_leaves_a_client_that_can_be_closed(client: str) -> None:
    """Every asynchronous method raises CancelledError, or has ended before, and the client works and closes."""
    one = make_async(client)
    before = asyncio.all_tasks()
    tried = 0
    for method, call in CALLS[client].items():
        function = getattr(ASYNC_CLASSES[client], "poll" if method == "raise_problems" else method, None)
        if method in NOT_ASYNC or not inspect.iscoroutinefunction(function):
            continue
        task = asyncio.create_task(one.unsubscribe() if method == "unsubscribe" else call(one))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        (end,) = await asyncio.gather(task, return_exceptions=True)
        assert type(end) is asyncio.CancelledError or method in WITHOUT_WAITING, (method, end)
        assert not isinstance(end, Exception) or isinstance(end, BarnabasError), (method, end)
        if method == "unsubscribe" and client == "Consumer":
            one.assign([T0])
        tried += 1
    assert tried
    await (one.close() if client == "RegistryClient" else one.close(1_000))
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(("method", "arguments", "text"), [
    ("create_topic", ("t", "three"), "create_topic: num_partitions must be an int, not 'three' (str)."),
    ("create_topics", (["t"],), "create_topics: topics[0] must be a NewTopic, not 't' (str)."),
    ("create_topic", ("t", 1, 1, {"retention.ms": 5}), "create_topic: configs['retention.ms'] must be a text or None,"
     " not 5 (int)."),
    ("delete_topics", ("old",), "delete_topics: names must be a list of texts, not 'old' (str); write ['old']."),
    ("delete_topics", (None,), "delete_topics: names must be a list of texts, not None."),
    ("delete_records", ({("t", 0): 1},), "delete_records: before key ('t', 0) must be a TopicPartition, not ('t', 0)"
     " (tuple)."),
    ("elect_leaders", ([T0], "preferred"), "elect_leaders: kind must be an ElectionType (PREFERRED, UNCLEAN), not"
     " 'preferred' (str)."),
    ("list_offsets", ([T0],), "list_offsets: timestamps must be a mapping of TopicPartitions to ints, not"
     " [TopicPartition(topic='t', partition=0)] (list)."),
])  # fmt: skip
def test_an_argument_of_a_wrong_type_is_named(method: str, arguments: tuple[Any, ...], text: str) -> None:
    admin = make("Admin", NOWHERE)
    with pytest.raises(TypeError) as raised:
        getattr(admin, method)(*arguments)
    close(admin)
    assert str(raised.value) == text
    assert isinstance(raised.value, BarnabasError)


@pytest.mark.parametrize("client", CALLS)
def test_a_wrong_type_never_raises_an_error_of_python_alone(client: str) -> None:
    """Each argument of each method once with an object that fits nowhere."""
    one = make(client, NOWHERE, timeout_ms=1)
    wrong = object()
    for method in CALLS[client]:
        function = getattr(CLASSES[client], method, None)
        if function is None or method in ("transaction", "acknowledge"):
            continue
        for name in list(inspect.signature(function).parameters)[1:]:
            required = {
                other.name: wrong
                for other in list(inspect.signature(function).parameters.values())[1:]
                if other.default is other.empty and other.kind not in (other.VAR_POSITIONAL, other.VAR_KEYWORD)
            }
            try:
                if inspect.signature(function).parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
                    function(one, *required.values(), wrong)
                else:
                    function(one, **{**required, name: wrong})
            except BarnabasError as error:
                assert str(error), (method, name)
    close(one)


def test_a_generator_of_names_is_read_once(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        assert list(admin.describe_topics(name for name in ["t"])) == ["t"]


@pytest.mark.parametrize("client", CALLS)
def test_a_blocking_client_that_is_not_closed_is_named(client: str) -> None:
    with pytest.warns(ResourceWarning, match=r"was not closed; call close\(\)"):
        make(client, NOWHERE)
        gc.collect()


@pytest.mark.parametrize("client", OF_KAFKA)
async def test_an_asyncio_client_with_connections_that_is_not_closed_is_named(client: str, servers: str) -> None:
    kind = ASYNC_CLASSES[client]
    settings = {"group_id": "g"} if "Consumer" in client else {}
    with pytest.warns(ResourceWarning, match=r"was not closed; call close\(\)"):
        one = kind(bootstrap_servers=servers, **settings)
        await one.cluster.refresh()
        del one
        gc.collect()


def test_an_unclosed_producer_at_the_end_of_the_program_prints_one_sentence() -> None:
    program = (
        "import barnabas\n"
        f"producer = barnabas.Producer(bootstrap_servers='{NOWHERE}', max_block_ms=10)\n"
        "producer.flush(1)\n"
        f"consumer = barnabas.Consumer(bootstrap_servers='{NOWHERE}', group_id='g')\n"
        "consumer.subscribe(['t'])\n"
        "consumer.poll(10)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "default::ResourceWarning", "-c", program], capture_output=True, text=True
    )
    assert ended.returncode == 0
    assert ended.stderr.count("was not closed; call close().") == 2, ended.stderr
    assert "Task was destroyed" not in ended.stderr
    assert "Traceback" not in ended.stderr
