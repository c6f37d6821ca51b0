"""Machine: maps the distinguished name of a client's certificate to a user name, by `ssl.principal.mapping.rules`.

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT        CN=Alice,OU=ServiceUsers,O=x -> alice

The rules are tried in order. The first one whose pattern matches the whole name decides; `DEFAULT` is the name itself.
The authority is Kafka's `SslPrincipalMapper`. Patterns are regular expressions of Java; those that Python's `re` cannot
compile are rejected when the node starts.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<to>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:[,\n]|$)"
)
_REFERENCE: Final = re.compile(r"\\(?P<literal>.)|\$(?P<group>\d+)", re.DOTALL)


class NoMatchingRuleError(BarnabasError):
    """No rule matches the name, so the connection has no principal and is closed."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None for DEFAULT, which matches every name."""
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        """The user name, or None if the rule does not match."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        result = _REFERENCE.sub(lambda found: self._expand(found, match), self.replacement)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    @staticmethod
    def _expand(found: re.Match[str], match: re.Match[str]) -> str:
        if found["literal"] is not None:
            return found["literal"]
        group = int(found["group"])
        return (match[group] or "") if group <= match.re.groups else found[0]


class PrincipalMapper:
    """The parsed rules. Raises ConfigError if a rule is malformed."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        self._rules = _parse(rules)

    def user_name(self, distinguished_name: str) -> str:
        """The user name of a certificate with this subject. Raises NoMatchingRuleError."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRuleError(
            f"No rule of ssl.principal.mapping.rules matches {distinguished_name}. Add a rule, or DEFAULT as the last."
        )


def _parse(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    rest = text.strip() or "DEFAULT"
    while rest:
        match = _RULE.match(rest)
        if match is None:
            raise ConfigError(
                f"ssl.principal.mapping.rules: {rest!r} does not begin with a rule. A rule is DEFAULT or"
                " RULE:pattern/replacement/ with L or U after the last slash for lower or upper case."
            )
        if match["default"]:
            rules.append(_Rule(None, "", ""))
        else:
            try:
                pattern = re.compile(match["pattern"])
            except re.error as error:
                raise ConfigError(
                    f"ssl.principal.mapping.rules: {match['pattern']!r} is not a regular expression: {error}."
                ) from error
            rules.append(_Rule(pattern, match["to"], match["case"]))
        rest = rest[match.end() :]
    return rules
