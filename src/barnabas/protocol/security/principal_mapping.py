r"""Machine: maps the distinguished name of a client's certificate to a user name, by `ssl.principal.mapping.rules`.

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT        CN=Alice,OU=ServiceUsers,O=x -> alice

The rules are tried in order. The first one whose pattern matches the whole name decides; `DEFAULT` is the name itself.
The authority is Kafka's `SslPrincipalMapper`, with the `replaceAll` of Java: when a rule matches, the replacement takes
the place of every text in the name that its pattern finds. A pattern such as `CN=(.*?)` matches the whole name, but
finds only `CN=`. So a pattern is best begun with `^` and ended with `$`. Patterns are regular expressions of Java,
whose classes such as `\w` are ASCII; those that Python's `re` cannot compile are rejected when the node starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<to>(?:\\.|[^\\/])*)/(?P<case>[LU]?)|)\s*(?:[,\n]|$)"
)
_REFERENCE: Final = re.compile(r"\\(?P<literal>.)|\$(?P<group>[0-9]*)", re.DOTALL)


class NoMatchingRuleError(BarnabasError):
    """No rule matches the name, so the connection has no principal and is closed."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """The pattern of names; None for DEFAULT, which matches every name."""
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        """The user name, or None if the rule does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = "".join(self._replaced(self.pattern, name))
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _replaced(self, pattern: re.Pattern[str], name: str) -> Iterator[str]:
        """The parts of the result. After an empty match the search goes on at the next character, as in Java; the `sub`
        of Python looks for another match at the same place first."""
        copied = search_from = 0
        while search_from <= len(name):
            match = pattern.search(name, search_from)
            if match is None:
                break
            yield name[copied : match.start()]
            yield _REFERENCE.sub(partial(_expand, match=match), self.replacement)
            copied = match.end()
            search_from = copied + (match.start() == copied)
        yield name[copied:]


def _expand(found: re.Match[str], match: re.Match[str]) -> str:
    """The text of `\\x`, which is x, or of `$12`: group 12, or group 1 and then a 2 if there are fewer groups, or the
    text itself if there is no such group at all."""
    if found["literal"] is not None:
        return found["literal"]
    number = found["group"]
    for digits in range(len(number), 0, -1):
        group = int(number[:digits])
        if group <= match.re.groups and not (group == 0 and digits > 1):
            return (match[group] or "") + number[digits:]
    return found[0]


def _check_replacement(pattern: re.Pattern[str], replacement: str) -> None:
    """Raises ConfigError for a replacement with which Kafka fails when a client connects."""
    for found in _REFERENCE.finditer(replacement):
        if found["literal"] is None and (not found["group"] or (not pattern.groups and found["group"][0] != "0")):
            raise ConfigError(
                f"ssl.principal.mapping.rules: {found[0]} in the replacement {replacement!r} is not a group of"
                f" {pattern.pattern!r}. Put parentheses around a part of the pattern, or write \\$ for a dollar sign."
            )


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
    """Empty rules are ignored, so an empty text has no rule, and no certificate a principal."""
    rules: list[_Rule] = []
    rest = text.strip()
    while rest:
        match = _RULE.match(rest)
        if match is None:
            raise ConfigError(
                f"ssl.principal.mapping.rules: {rest!r} does not begin with a rule. A rule is DEFAULT or"
                " RULE:pattern/replacement/ with L or U after the last slash for lower or upper case."
            )
        if match["default"]:
            rules.append(_Rule(None, "", ""))
        elif match["pattern"] is not None:
            try:
                pattern = re.compile(match["pattern"], re.ASCII)
            except re.error as error:
                raise ConfigError(
                    f"ssl.principal.mapping.rules: {match['pattern']!r} is not a regular expression: {error}."
                ) from error
            _check_replacement(pattern, match["to"])
            rules.append(_Rule(pattern, match["to"], match["case"]))
        rest = rest[match.end() :]
    return rules
