"""Every exception class of the package can be pickled with its fields, which Spark and process pools need."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
from concurrent.futures import ProcessPoolExecutor
from http import HTTPStatus
from multiprocessing import get_context
from typing import Any
from uuid import UUID

import pytest

import barnabas
from barnabas.client.errors import BrokerUnreachableError, OffsetOutOfRangeError, SerializationError
from barnabas.client.serialization import NotReadyError
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.transport.http.doors import HttpRefusal

SAMPLES: dict[str, Any] = {
    "str": "what happened",
    "object": "a value",
    "str | None": "what happened",
    "BarnabasError": KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "the first error"),
    "bool": True,
    "int": 17,
    "float": 1.5,
    "ErrorCode": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "ErrorCode | int": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "UUID": UUID(int=1),
    "TopicPartition": TopicPartition("orders", 3),
    "list[TopicPartition]": [TopicPartition("orders", 3)],
    "Sequence[str]": ("a reason", "another"),
    "tuple[str, ...]": ("a statement",),
    "Sequence[tuple[int, str]]": ((0, "a reason"),),
    "HTTPStatus": HTTPStatus.NOT_FOUND,
    "HttpRefusal": HttpRefusal(HTTPStatus.FORBIDDEN, "not allowed"),
    "Callable[[], Awaitable[object]]": lambda: None,
}
"""A value for each type of the parameters of our exceptions."""
NOT_IMPORTED = ("barnabas.__main__", "barnabas.cli.__main__")


def exception_classes() -> list[type[BaseException]]:
    found: set[type[BaseException]] = set()
    for module in pkgutil.walk_packages(barnabas.__path__, "barnabas."):
        if module.name not in NOT_IMPORTED:
            for one in vars(importlib.import_module(module.name)).values():
                if inspect.isclass(one) and issubclass(one, BaseException) and one.__module__.startswith("barnabas."):
                    found.add(one)
    return sorted(found, key=lambda one: (one.__module__, one.__qualname__))


def sample(kind: type[BaseException]) -> BaseException:
    """An error of this class, built from its parameters' types."""
    if not any("__init__" in vars(one) for one in kind.__mro__ if one.__module__.startswith("barnabas.")):
        return kind("what happened")
    parameters = list(inspect.signature(kind).parameters.values())
    return kind(*(SAMPLES[str(parameter.annotation)] for parameter in parameters))


@pytest.mark.parametrize("kind", exception_classes(), ids=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
def test_every_exception_class_survives_pickling_with_its_fields(kind: type[BaseException]) -> None:
    error = sample(kind)
    error.add_note("a note")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is (SerializationError if kind is NotReadyError else kind)
    assert (str(again), again.args) == (str(error), error.args)
    if kind is not NotReadyError:
        assert repr(vars(again)) == repr(vars(error))
        assert repr(again) == repr(error)


def test_the_walk_finds_the_exceptions_of_all_packages() -> None:
    packages = {kind.__module__.split(".")[1] for kind in exception_classes()}
    assert packages >= {"cli", "client", "core", "protocol", "registry", "server", "spark", "testing"}


def test_an_unpickled_error_keeps_what_programs_decide_by() -> None:
    again = pickle.loads(pickle.dumps(OffsetOutOfRangeError(TopicPartition("orders", 0), 7, 10, 20)))
    assert (again.code, again.offset, again.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 7, 10)
    lost = pickle.loads(pickle.dumps(BrokerUnreachableError("broker 1 is down")))
    assert lost.retriable
    assert lost.code is ErrorCode.NETWORK_EXCEPTION


def _fails() -> None:
    raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "Writing to orders-0 failed.")


def test_a_process_pool_shows_the_error_of_its_worker() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        error = pool.submit(_fails).exception()
    assert isinstance(error, BarnabasError)
    assert repr(error) == "KafkaError(NOT_ENOUGH_REPLICAS, 'Writing to orders-0 failed.')"
