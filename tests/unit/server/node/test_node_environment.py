"""Settings from environment variables, by the rule of Apache Kafka's images."""

from __future__ import annotations

import pytest

from barnabas.server.node.setup.environment import settings_from_environment


def test_underscores_stand_for_dots_underscores_and_dashes() -> None:
    environment = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_LISTENER_NAME_MY___CLIENTS_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFKA_A__B": "c=d, e",
        "KAFKA_SUPER_USERS": "",
    }
    assert settings_from_environment(environment) == {
        "node.id": "1",
        "listener.name.my-clients.sasl.enabled.mechanisms": "PLAIN",
        "a_b": "c=d, e",
        "super.users": "",
    }


def test_other_variables_and_those_of_scripts_are_no_settings() -> None:
    assert (
        settings_from_environment({"HOME": "/", "KAFKA_": "", "KAFKA_OPTS": "-Da", "KAFKA_HEAP_OPTS": "-Xmx1G"}) == {}
    )


def test_four_underscores_are_refused() -> None:
    with pytest.raises(ValueError, match="KAFKA_A____B has 4 underscores in a row"):
        settings_from_environment({"KAFKA_A____B": "1"})
