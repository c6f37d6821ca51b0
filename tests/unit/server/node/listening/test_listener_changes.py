"""Which changes of a running broker's listeners are allowed (Kafka's DynamicListenerConfig)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.core.config import ConfigError
from barnabas.server.node.config import NodeConfig, build_config
from barnabas.server.node.listening.changes import plan_listeners

OUTSIDE = "OUTSIDE://127.0.0.1:9094"
STATIC = {
    "log.dirs": "/d",
    "listeners": f"INSIDE://127.0.0.1:9092,{OUTSIDE},CONTROLLER://127.0.0.1:9093",
    "advertised.listeners": "INSIDE://127.0.0.1:9092,OUTSIDE://example.com:9094",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL,CONTROLLER:PLAINTEXT,MORE:SASL_SSL",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INSIDE",
    "listener.name.outside.ssl.keystore.location": "/old.pem",
}
MORE = {"listeners": STATIC["listeners"] + ",MORE://127.0.0.1:9095"}


def static(**more: str) -> NodeConfig:
    return build_config({**STATIC, **{name.replace("_", "."): text for name, text in more.items()}})


def test_a_listener_is_added_and_removed() -> None:
    config = static()
    plan = plan_listeners(config, config, MORE)
    assert [str(endpoint) for endpoint in plan.added] == ["MORE://127.0.0.1:9095"]
    assert plan.added[0].security_protocol == "SASL_SSL"
    assert (plan.removed, plan.new_stores) == ((), ())
    assert not plan_listeners(config, plan.config, MORE), "nothing is left to do"
    back = plan_listeners(config, plan.config, {})
    assert (back.added, back.removed) == ((), ("MORE",))


def test_other_stores_of_an_open_listener() -> None:
    config = static()
    plan = plan_listeners(config, config, {"listener.name.outside.ssl.keystore.location": "/new.pem"})
    assert [endpoint.name for endpoint in plan.new_stores] == ["OUTSIDE"]
    assert (plan.added, plan.removed) == ((), ())


@pytest.mark.parametrize("name", ["inside", "controller"])
def test_stores_of_a_listener_without_tls_have_no_effect(name: str) -> None:
    config = static()
    assert not plan_listeners(config, config, {f"listener.name.{name}.ssl.keystore.password": "x"})


def test_other_configs_are_none_of_the_listeners() -> None:
    config = static()
    limits = {"listener.name.outside.max.connections": "7", "log.cleaner.threads": "2"}
    assert not plan_listeners(config, config, limits)


@pytest.mark.parametrize(
    ("dynamic", "reason"),
    [
        ({"listeners": "INSIDE://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"}, "advertised.listeners names OUTSIDE"),
        ({"listeners": STATIC["listeners"].replace("9094", "9099")}, "address of the listener OUTSIDE"),
        ({"listeners": STATIC["listeners"].replace("9093", "9099")}, "listeners of controllers cannot be changed"),
        ({"listeners": STATIC["listeners"] + ",OTHER://127.0.0.1:9095"}, "OTHER"),
        ({"listeners": STATIC["listeners"] + ",MORE://127.0.0.1:9092"}, "same port 9092"),
        (
            {"listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL,CONTROLLER:PLAINTEXT"},
            "security protocol of the listener OUTSIDE",
        ),
        ({"listener.name.outside.ssl.client.auth": "required"}, "cannot be changed while the listener OUTSIDE is open"),
        (
            {"listener.name.controller.sasl.enabled.mechanisms": "PLAIN"},
            "cannot be changed while the listener CONTROLLER is open",
        ),
    ],
)
def test_refused_changes(dynamic: Mapping[str, str], reason: str) -> None:
    config = static()
    with pytest.raises(ConfigError, match=reason):
        plan_listeners(config, config, dynamic)


def test_without_advertised_listeners_no_listener_is_added() -> None:
    config = build_config({name: text for name, text in STATIC.items() if name != "advertised.listeners"})
    with pytest.raises(ConfigError, match="in the configuration file, restart the node"):
        plan_listeners(config, config, MORE)
    assert plan_listeners(config, config, {"listener.name.outside.ssl.key.password": "x"}).new_stores


def test_an_advertised_listener_is_not_removed() -> None:
    config = build_config({**STATIC, "advertised.listeners": "INSIDE://127.0.0.1:9092"})
    with pytest.raises(ConfigError, match="OUTSIDE: an advertised listener cannot be removed"):
        plan_listeners(config, config, {"listeners": "INSIDE://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"})
