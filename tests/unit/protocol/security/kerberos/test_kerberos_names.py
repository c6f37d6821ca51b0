"""Kerberos principals and user names: the cases of Kafka's KerberosNameTest and KerberosRuleTest."""

from __future__ import annotations

import pytest

from barnabas.core.config import ConfigError
from barnabas.protocol.security.kerberos.names import (
    KerberosName,
    KerberosNameError,
    KerberosShortNamer,
    parse_kerberos_name,
)

PLAIN = (r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g", r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g", "DEFAULT")


def cased(case: str) -> tuple[str, ...]:
    return (
        f"RULE:[1:$1]/{case}",
        f"RULE:[2:$1](Test.*)s/ABC///{case}",
        f"RULE:[2:$1](ABC.*)s/ABC/XYZ/g/{case}",
        rf"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g/{case}",
        f"RULE:[2:$1]/{case}",
        "DEFAULT",
    )


def short(principal: str, *rules: str) -> str:
    return KerberosShortNamer("REALM.COM", rules or ("DEFAULT",)).short_name(parse_kerberos_name(principal))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("App.service-name/example.com@REALM.COM", KerberosName("App.service-name", "example.com", "REALM.COM")),
        ("App.service-name@REALM.COM", KerberosName("App.service-name", None, "REALM.COM")),
        ("user/host@REALM.COM", KerberosName("user", "host", "REALM.COM")),
        ("user", KerberosName("user", None, None)),
        ("user/host", KerberosName("user/host", None, None)),
    ],
)
def test_a_principal_has_one_or_two_components_and_a_realm(text: str, name: KerberosName) -> None:
    assert parse_kerberos_name(text) == name
    assert str(name) == text


@pytest.mark.parametrize("text", ["a/b/c@REALM", "a@b@REALM", "a@REALM/host"])
def test_a_malformed_principal_is_refused(text: str) -> None:
    with pytest.raises(KerberosNameError, match="Malformed Kerberos name"):
        parse_kerberos_name(text)


@pytest.mark.parametrize(
    ("principal", "rules", "user"),
    [
        ("App.service-name/example.com@REALM.COM", PLAIN, "service-name"),
        ("App.service-name@REALM.COM", PLAIN, "service-name"),
        ("user/host@REALM.COM", PLAIN, "user"),
        ("User@REALM.COM", cased("L"), "user"),
        ("TestABC/host@FOO.COM", cased("L"), "test"),
        ("ABC_User_ABC/host@FOO.COM", cased("L"), "xyz_user_xyz"),
        ("App.SERVICE-name/example.com@REALM.COM", cased("L"), "service-name"),
        ("User/root@REALM.COM", cased("L"), "user"),
        ("User@REALM.COM", cased("U"), "USER"),
        ("TestABC/host@FOO.COM", cased("U"), "TEST"),
        ("ABC_User_ABC/host@FOO.COM", cased("U"), "XYZ_USER_XYZ"),
        ("App.SERVICE-name/example.com@REALM.COM", cased("U"), "SERVICE-NAME"),
        ("User/root@REALM.COM", cased("U"), "USER"),
        # the rules themselves
        ("alice@REALM.COM", ("DEFAULT",), "alice"),
        ("kafka/host@REALM.COM", ("DEFAULT",), "kafka"),
        ("alice", ("RULE:[2:x]",), "alice"),
        ("a/b@C.COM", ("RULE:[2:$2-$1-$0]",), "b-a-C.COM"),
        ("a@C.COM", ("RULE:[1:hello]",), "hello"),
        ("aa@C.COM", ("RULE:[1:$1]s/a/b/",), "ba"),
        ("aa@C.COM", ("RULE:[1:$1]s/a/b/g",), "bb"),
        ("a$@C.COM", (r"RULE:[1:$1]s/\$/\$1/",), "a$1"),
        ("ab@C.COM", ("RULE:[1:$1](b.*)", "RULE:[1:other]"), "other"),
    ],
)
def test_the_first_rule_that_applies_makes_the_user_name(principal: str, rules: tuple[str, ...], user: str) -> None:
    assert short(principal, *rules) == user


@pytest.mark.parametrize(
    ("principal", "rules", "reason"),
    [
        ("alice@OTHER.COM", ("DEFAULT",), "No rule of sasl.kerberos.principal.to.local.rules applies to alice@OTHER"),
        ("a/b@REALM.COM", ("RULE:[1:$1]",), "No rule"),
        ("a@REALM.COM", (), "No rule"),
        ("a@REALM.COM", ("RULE:[1:$1@$0]",), "Non-simple name a@REALM.COM"),
        ("a/b@REALM.COM", ("RULE:[2:$1/$2]",), "Non-simple name a/b"),
    ],
)
def test_a_principal_without_a_simple_user_name_is_refused(principal: str, rules: tuple[str, ...], reason: str) -> None:
    with pytest.raises(KerberosNameError, match=reason):
        KerberosShortNamer("REALM.COM", rules).short_name(parse_kerberos_name(principal))


@pytest.mark.parametrize(
    "rule",
    [
        "default", "DEFAUL", "DEFAULT/L", "DEFAULT/g", "rule:[1:$1]", "rule:[1:$1]/L/U", "rule:[1:$1]/U/L",
        "rule:[1:$1]/LU", "RULE:[1:$1/L", "RULE:[1:$1]/l", "RULE:[2:$1](ABC.*)s/ABC/XYZ/L/g",
        "RULE:[:$1]", "RULE:[1:$2]", "RULE:[1:$a]", "RULE:[1:$]", "RULE:[1:$1](*)", "RULE:[1:$1]s/a/$1/", "",
    ],
)  # fmt: skip
def test_a_malformed_rule_is_refused_at_the_start(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        KerberosShortNamer("REALM.COM", [rule])
