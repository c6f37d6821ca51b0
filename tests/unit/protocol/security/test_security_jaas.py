"""The parser of sasl.jaas.config accepts what Kafka's JaasConfig accepts, and names what is wrong without a secret."""

from __future__ import annotations

import pytest

from barnabas.core.config import ConfigError
from barnabas.protocol.security.jaas import parse_jaas

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_users_and_the_own_identity_are_read() -> None:
    entry = parse_jaas(
        f'{_PLAIN} required\n  username="broker" password="pa ss"  // the identity of this broker\n'
        "  /* the clients */ user_alice='al=ice;' user_bob=bobs-password user_empty=\"\";"
    )
    assert entry.login_module == _PLAIN
    assert (entry.flag, entry.username, entry.password) == ("required", "broker", "pa ss")
    assert entry.users() == {"alice": "al=ice;", "bob": "bobs-password", "empty": ""}


@pytest.mark.parametrize("flag", ["required", "REQUISITE", "Sufficient", "optional"])
def test_every_flag_is_accepted_in_any_case(flag: str) -> None:
    assert parse_jaas(f"{_PLAIN} {flag};").flag == flag.lower()


def test_escapes_in_quoted_values_are_those_of_java() -> None:
    entry = parse_jaas(f'{_PLAIN} required a="\\"q\\"" b="\\\\" c="\\101\\t";')
    assert entry.options == {"a": '"q"', "b": "\\", "c": "A\t"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "class of a login module"),
        (_PLAIN, "required, requisite"),
        (f"{_PLAIN} maybe;", "must be required"),
        (f"{_PLAIN} required username=secret1", "semicolon"),
        (f"{_PLAIN} required username;", "no value"),
        (f"{_PLAIN} required username=;", "no value"),
        (f"{_PLAIN} required username=123;", "double quotes"),
        (f'{_PLAIN} required password="secret1;', "does not end"),
        (f"{_PLAIN} required password=a/secret1;", "double quotes"),
        (f"{_PLAIN} required =secret1;", "name of an option"),
        (f"{_PLAIN} required; {_PLAIN} required;", "only one login module"),
    ],
)
def test_a_malformed_value_is_refused_without_its_secret(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        parse_jaas(text, "listener.name.client.plain.sasl.jaas.config")
    assert "secret1" not in str(caught.value)
    assert str(caught.value).startswith("listener.name.client.plain.sasl.jaas.config")


def test_the_repr_has_no_passwords() -> None:
    assert "secret1" not in repr(parse_jaas(f'{_PLAIN} required password="secret1";'))
