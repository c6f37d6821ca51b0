"""The tables of served APIs as text, so that a diff shows a change of the served versions."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path

import pytest

from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.server.broker.apis import BROKER_APIS, ROUTES, ApiTable, Route
from barnabas.server.broker.controller_apis import CONTROLLER_APIS, CONTROLLER_ROUTES, FORWARDABLE
from barnabas.server.broker.handlers.cluster.api_versions import advertised

TABLES = [
    (BROKER_APIS, Path(__file__).with_name("api_versions.txt")),
    (CONTROLLER_APIS, Path(__file__).with_name("controller_api_versions.txt")),
]


def render(table: ApiTable) -> str:
    names = {int(key): api.name for key, api in APIS.items()}
    return "".join(
        f"{api.api_key:>3}  {names[api.api_key]:<24} {api.min_version} to {api.max_version}\n"
        for api in advertised(table)
    )


@pytest.mark.parametrize(("table", "expected"), TABLES, ids=["broker", "controller"])
def test_advertised_apis_are_those_of_the_golden_file(
    table: ApiTable, expected: Path, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--rewrite"):
        expected.write_text(render(table))
    assert render(table) == expected.read_text()


SERVED_UNSTABLE = {ApiKey.INIT_PRODUCER_ID}
"""Version 6 is two-phase commit (KIP-939); without `transaction.two.phase.commit.enable` it behaves as version 5."""


@pytest.mark.parametrize(
    ("route", "listener"),
    [(route, "broker") for route in ROUTES] + [(route, "controller") for route in CONTROLLER_ROUTES],
    ids=[route.key.name for route in ROUTES] + [f"controller {route.key.name}" for route in CONTROLLER_ROUTES],
)
def test_every_route_has_a_handler_that_documents_existing_versions(route: Route, listener: str) -> None:
    module = import_module(f"barnabas.server.broker.handlers.{route.handler}")
    assert iscoroutinefunction(module.handle)
    api = APIS[route.key]
    assert api.min_version <= route.min_version <= route.max_version <= api.max_version
    assert listener in api.listeners, "the API does not belong on this listener"
    assert route.key in SERVED_UNSTABLE or not (api.latest_version_unstable and route.max_version == api.max_version)
    assert module.__doc__ is not None
    assert f"key {int(route.key)}" in module.__doc__
    bullets = [int(version) for version in re.findall(r"^- (\d+): ", module.__doc__, re.MULTILINE)]
    assert bullets == list(range(route.min_version, route.max_version + 1)), "one bullet for each served version"


def test_forwardable_apis_are_served_by_brokers_and_controllers() -> None:
    for key in FORWARDABLE:
        broker, controller = BROKER_APIS.by_key[key], CONTROLLER_APIS.by_key[key]
        assert (broker.min_version, broker.max_version) == (controller.min_version, controller.max_version)


def test_versions_that_real_clients_need_are_advertised() -> None:
    served = {api.api_key: (api.min_version, api.max_version) for api in advertised(BROKER_APIS)}
    assert served[ApiKey.PRODUCE][0] == 0, "KAFKA-18659"
    assert served[ApiKey.JOIN_GROUP][0] == 0, "KAFKA-19444"
    assert served[ApiKey.DELETE_GROUPS][0] == 0
