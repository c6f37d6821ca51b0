"""The settings of GSSAPI for clients, and what is said without the package or without a setting."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from barnabas.client.options import ClusterConfig
from barnabas.core.config import ConfigError
from barnabas.protocol.security.config import SaslConfig
from barnabas.protocol.security.kerberos.settings import KerberosLogin
from barnabas.protocol.transport.kerberos import KerberosAcceptor, KerberosClient

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"


def sasl_of(**settings: Any) -> SaslConfig:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    options = ClusterConfig.of({"bootstrap.servers": "h:1", "security.protocol": "SASL_PLAINTEXT", **config})
    assert options.security.sasl is not None
    return options.security.sasl


@pytest.mark.parametrize(
    ("jaas", "login"),
    [
        (
            'useKeyTab=true storeKey=true keyTab="/k" principal="alice@R";',
            KerberosLogin("kafka", "alice@R", "/k"),
        ),
        ('useKeyTab=true keyTab="FILE:/k" principal="alice@R";', KerberosLogin("kafka", "alice@R", "/k")),
        ('useTicketCache=true ticketCache="/c";', KerberosLogin("kafka", None, None, "/c")),
        ('useTicketCache=true principal="alice@R";', KerberosLogin("kafka", "alice@R")),
        ('useKeyTab=false keyTab="/k" serviceName="kafka";', KerberosLogin("kafka")),
    ],
)
def test_the_options_are_those_of_java(jaas: str, login: KerberosLogin) -> None:
    found = sasl_of(sasl_mechanism="GSSAPI", sasl_kerberos_service_name="kafka", sasl_jaas_config=f"{MODULE} {jaas}")
    assert found == SaslConfig("GSSAPI", login.principal, kerberos=login)


def test_gssapi_is_the_default_mechanism() -> None:
    assert sasl_of(sasl_kerberos_service_name="kafka").kerberos == KerberosLogin("kafka")


def test_the_names_of_librdkafka_are_known() -> None:
    found = sasl_of(sasl_kerberos_service_name="kafka", sasl_kerberos_keytab="/k", sasl_kerberos_principal="alice@R")
    assert found.kerberos == KerberosLogin("kafka", "alice@R", "/k")


def test_the_service_name_may_be_an_option_of_jaas() -> None:
    assert sasl_of(sasl_jaas_config=f'{MODULE} serviceName="broker";').kerberos == KerberosLogin("broker")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, r"sasl\.kerberos\.service\.name"),
        ({"sasl_jaas_config": f"{MODULE} serviceName=a;", "sasl_kerberos_service_name": "b"}, "contradicts"),
        ({"sasl_jaas_config": f"{MODULE} useKeyTab=true;", "sasl_kerberos_service_name": "b"}, "needs the path"),
        ({"sasl_kerberos_keytab": "/k", "sasl_kerberos_service_name": "b"}, "needs a principal"),
    ],
)
def test_an_incomplete_setting_is_refused_with_what_to_set(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        sasl_of(**settings)


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"pip install 'barnabas\[gssapi\]'"):
        KerberosAcceptor("kafka/host", "/k")
    with pytest.raises(ConfigError, match=r"pip install 'barnabas\[gssapi\]'"):
        KerberosClient(KerberosLogin("kafka"), "host")
