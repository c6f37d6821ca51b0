"""SCRAM credentials as Kafka's tools write them: the cases of Kafka's ScramParserTest."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.core.config import ConfigError
from barnabas.protocol.security import scram
from barnabas.protocol.security.scram_arguments import parse_scram


def test_a_password_with_all_values() -> None:
    found = parse_scram(
        'SCRAM-SHA-256=[name="a b",password="se=cret",iterations=8192,salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5eTFrN3E="]'
    )
    assert (found.mechanism, found.user, found.iterations, found.password) == ("SCRAM-SHA-256", "a b", 8192, "se=cret")
    assert found.credential(Random(1)) == scram.credential("sha256", "se=cret", b"1lv4pdnw4fwq7notcxm0yy1k7q", 8192)


def test_defaults_are_4096_iterations_and_a_random_salt() -> None:
    found = parse_scram("SCRAM-SHA-512=[name=alice,password=secret]")
    one, two = found.credential(Random(1)), found.credential(Random(2))
    assert one.iterations == 4096
    assert one.salt != two.salt
    assert one == scram.credential("sha512", "secret", one.salt, 4096)


def test_a_salted_password_replaces_the_password() -> None:
    found = parse_scram("SCRAM-SHA-256=[name=alice,salt=c2FsdA==,saltedpassword=c2FsdGVk]")
    assert found.credential(Random(1)) == scram.credential_of("sha256", b"salted", b"salt", 4096)


def test_the_form_of_kafka_configs_has_no_name() -> None:
    assert parse_scram("SCRAM-SHA-256=[iterations=8192,password=x]", user="bob").user == "bob"
    with pytest.raises(ConfigError, match="name is not allowed"):
        parse_scram("SCRAM-SHA-256=[name=a,password=x]", user="bob")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("PLAIN=[name=a,password=secret1]", "not a SCRAM mechanism"),
        ("SCRAM-SHA-256", "square brackets"),
        ("SCRAM-SHA-256=name=a,password=secret1", "square brackets"),
        ("SCRAM-SHA-256=[password=secret1]", "name is missing"),
        ("SCRAM-SHA-256=[name=a]", "exactly one"),
        ("SCRAM-SHA-256=[name=a,password=secret1,saltedpassword=eA==,salt=eA==]", "exactly one"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=eA==]", "needs salt"),
        ("SCRAM-SHA-256=[name=a,password=]", "empty"),
        ("SCRAM-SHA-256=[name=a,password=secret1,iterations=4095]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret1,iterations=16385]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret1,iterations=x]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret1,salt=!]", "base64"),
        ('SCRAM-SHA-256=[name=a,password="secret1]', "does not end"),
        ("SCRAM-SHA-256=[name=a,name=b,password=secret1]", "name is unknown, repeated"),
        ("SCRAM-SHA-256=[name=a,password=x,secret1]", "a part is unknown"),
    ],
)
def test_a_malformed_text_is_refused_without_its_password(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        parse_scram(text)
    assert "secret1" not in str(caught.value)
    assert "secret1" not in repr(caught.value)
