"""The table of served APIs as text: a change of it is a change of the product, so it shows in the diff."""

from __future__ import annotations

from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path

import pytest

from barnabas.broker.apis import ROUTES, Route
from barnabas.broker.handlers.cluster.api_versions import advertised
from barnabas.wire.apis import APIS, ApiKey

EXPECTED = Path(__file__).with_name("api_versions.txt")


def table() -> str:
    names = {int(key): api.name for key, api in APIS.items()}
    return "".join(
        f"{api.api_key:>3}  {names[api.api_key]:<24} {api.min_version} to {api.max_version}\n" for api in advertised()
    )


def test_the_advertised_apis(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite"):
        EXPECTED.write_text(table())
    assert table() == EXPECTED.read_text()


SERVED_UNSTABLE = {ApiKey.INIT_PRODUCER_ID}
"""Version 6 is two-phase commit (KIP-939); without `transaction.two.phase.commit.enable` it does what 5 does."""


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.key.name)
def test_every_route_has_a_handler_and_versions_that_exist(route: Route) -> None:
    module = import_module(f"barnabas.broker.handlers.{route.handler}")
    assert iscoroutinefunction(module.handle)
    api = APIS[route.key]
    assert api.min_version <= route.min_version <= route.max_version <= api.max_version
    assert "broker" in api.listeners, "an API of the controllers does not belong on this listener"
    assert route.key in SERVED_UNSTABLE or not (api.latest_version_unstable and route.max_version == api.max_version)
    assert module.__doc__ is not None
    assert f"key {int(route.key)}" in module.__doc__


def test_what_real_clients_break_on() -> None:
    served = {api.api_key: (api.min_version, api.max_version) for api in advertised()}
    assert served[ApiKey.PRODUCE][0] == 0, "KAFKA-18659"
    assert served[ApiKey.JOIN_GROUP][0] == 0, "KAFKA-19444"
    assert served[ApiKey.DELETE_GROUPS][0] == 0
    for unserved in (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY):
        assert unserved not in served
