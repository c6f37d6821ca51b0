"""The tables of served APIs as text, so that a diff shows a change of the served versions."""

from __future__ import annotations

import re
import sys
from inspect import iscoroutinefunction
from pathlib import Path

import pytest

from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.server.broker.apis import API_ROWS, BROKER_APIS, CONTROLLER_APIS, ApiTable, Served
from barnabas.server.broker.handlers.admin.api_versions import advertised
from barnabas.server.broker.served import load_handler

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
    ("key", "served", "listener"),
    [
        pytest.param(ApiKey(key), served, listener, id=f"{listener} {ApiKey(key).name}")
        for listener, table in (("broker", BROKER_APIS), ("controller", CONTROLLER_APIS))
        for key, served in table.by_key.items()
    ],
)
def test_every_api_has_a_handler_that_documents_existing_versions(key: ApiKey, served: Served, listener: str) -> None:
    handler = load_handler(served.folder, key)
    assert iscoroutinefunction(handler)
    api = APIS[key]
    assert api.min_version <= served.min_version <= served.max_version <= api.max_version
    assert listener in api.listeners, "the API does not belong on this listener"
    assert key in SERVED_UNSTABLE or not (api.latest_version_unstable and served.max_version == api.max_version)
    essay = handler.__doc__ or sys.modules[handler.__module__].__doc__
    assert essay is not None
    assert f"key {int(key)}" in essay
    bullets = [int(version) for version in re.findall(r"^ *- (\d+): ", essay, re.MULTILINE)]
    assert bullets == list(range(served.min_version, served.max_version + 1)), "one bullet for each served version"


def test_forwardable_apis_are_served_by_brokers_and_controllers() -> None:
    for row in API_ROWS.values():
        if not row.is_forwarded:
            continue
        broker, controller = row.broker, row.controller
        assert broker is not None
        assert controller is not None
        assert (broker.min_version, broker.max_version) == (controller.min_version, controller.max_version)


def test_versions_that_real_clients_need_are_advertised() -> None:
    served = {api.api_key: (api.min_version, api.max_version) for api in advertised(BROKER_APIS)}
    assert served[ApiKey.PRODUCE][0] == 0, "KAFKA-18659"
    assert served[ApiKey.JOIN_GROUP][0] == 0, "KAFKA-19444"
    assert served[ApiKey.DELETE_GROUPS][0] == 0
