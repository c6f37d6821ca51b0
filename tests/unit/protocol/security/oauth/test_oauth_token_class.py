"""A class of a user checks the tokens of OAUTHBEARER."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.config import ConfigError
from barnabas.protocol.security.oauth.token_class import TokenClass, load_token_class
from barnabas.protocol.security.oauth.tokens import BearerToken, TokenError

NOW_MS = 1_700_000_000_000
SETTING = "listener.name.clients.oauthbearer.sasl.server.callback.handler.class"


class Checker:
    """Accepts tokens of the form name:answer."""

    def __init__(self, configs: Mapping[str, str], options: Mapping[str, str]) -> None:
        self.prefix = configs["company.prefix"] + options["team"]

    def validate(self, text: str, wall_ms: int) -> Any:
        name, _, answer = text.partition(":")
        match answer:
            case "good":
                return BearerToken(text, self.prefix + name, wall_ms + 1)
            case "late":
                return BearerToken(text, name, wall_ms)
            case "refused":
                raise TokenError("a reason", scope="kafka")
            case "nothing":
                return None
            case "nameless":
                return BearerToken(text, " ", wall_ms + 1)
            case _:
                raise KeyError(answer)


class NoChecker:
    """Lacks the method."""

    def __init__(self, configs: Mapping[str, str], options: Mapping[str, str]) -> None: ...


def load(name: str = f"{__name__}:Checker") -> TokenClass:
    return load_token_class(SETTING, name, {"company.prefix": "x-"}, {"team": "a-"})


def test_the_principal_is_that_of_the_class() -> None:
    assert load().validate("alice:good", NOW_MS) == BearerToken("alice:good", "x-a-alice", NOW_MS + 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("alice:refused", "a reason"),
        ("alice:late", "the token has expired"),
        ("alice:nothing", "returned no BearerToken"),
        ("alice:nameless", "returned no BearerToken"),
        ("alice:other", "failed: KeyError"),
    ],
)
def test_everything_else_is_refused(text: str, reason: str) -> None:
    with pytest.raises(TokenError, match=reason):
        load().validate(text, NOW_MS)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (f"{__name__}:NoChecker", "lacks validate"),
        ("nowhere.Checker", "cannot be imported"),
        ("org.apache.kafka.common.Other", "is a class of Apache Kafka"),
    ],
)
def test_a_class_that_cannot_be_used_is_named(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refusal:
        load(name)
    assert SETTING in str(refusal.value)


def test_the_class_of_the_security_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[5] / "docs" / "SECURITY.md").read_text(encoding="utf-8")
    code = page.partition("**A class of your own** checks")[2].partition("```python\n")[2].partition("```")[0]
    (tmp_path / "company_tokens.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    checker = load_token_class(SETTING, "company_tokens:Checker", {}, {"companySecret": "s"})
    assert checker.validate("alice-s", NOW_MS).principal == "alice"
    with pytest.raises(TokenError, match="wrong secret"):
        checker.validate("alice-x", NOW_MS)
