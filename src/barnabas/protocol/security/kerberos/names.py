r"""Machine: maps the Kerberos principal of a client to a user name, by `sasl.kerberos.principal.to.local.rules`.

    DEFAULT                                          alice@EXAMPLE.COM         -> alice, in the default realm only
    RULE:[1:$1]                                      alice@OTHER.COM           -> alice
    RULE:[2:$1](App\..*)s/App\.(.*)/$1/g/L           App.Billing/host@OTHER    -> billing

A rule is for principals with so many components. `$0` is the realm, `$1` and `$2` are the components. The text that
they make must match the expression in parentheses; then the substitution is made, once or everywhere (g); L and U are
lower and upper case. The first rule that applies decides. The authorities are Kafka's `KerberosRule` and
`KerberosShortNamer`. Expressions are those of Java; what Python's `re` cannot compile is rejected when the node starts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError

CONFIG: Final = "sasl.kerberos.principal.to.local.rules"
_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(
    r"DEFAULT|RULE:\[(?P<components>\d+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<repeat>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER: Final = re.compile(r"\$(\d*)")
_REFERENCE: Final = re.compile(r"\\(?P<literal>.)|\$(?P<group>\d+)", re.DOTALL)
_NOT_SIMPLE: Final = re.compile(r"[/@]")


class KerberosNameError(BarnabasError):
    """The principal is malformed, or no rule maps it to a user name: the client is refused."""


class KerberosName(NamedTuple):
    """`service/host@REALM`, `user@REALM`, or a name without realm."""

    service: str
    host: str | None
    realm: str | None

    def __str__(self) -> str:
        host = "" if self.host is None else f"/{self.host}"
        return f"{self.service}{host}" + ("" if self.realm is None else f"@{self.realm}")


def parse_kerberos_name(text: str) -> KerberosName:
    """Raises KerberosNameError if the text has an @ and is not a principal with one or two components."""
    match = _NAME.fullmatch(text)
    if match is not None:
        return KerberosName(match[1], match[2], match[3])
    if "@" in text:
        raise KerberosNameError(f"Malformed Kerberos name: {text}")
    return KerberosName(text, None, None)


class _Rule(NamedTuple):
    text: str
    components: int
    """The number of components of the names that the rule fits; 0 for DEFAULT."""
    format: str
    match: re.Pattern[str] | None
    substitute: re.Pattern[str] | None
    replacement: str
    repeat: bool
    case: str

    def apply(self, parameters: Sequence[str], default_realm: str) -> str | None:
        """The user name, or None if the rule does not apply. `parameters` are the realm and the components."""
        if not self.components:
            result = parameters[1] if parameters[0] == default_realm else None
        elif self.components != len(parameters) - 1:
            return None
        else:
            result = _PARAMETER.sub(lambda found: parameters[int(found[1])], self.format)
            if self.match is not None and not self.match.fullmatch(result):
                return None
            if self.substitute is not None:
                result = self.substitute.sub(self._replaced, result, count=0 if self.repeat else 1)
        if result is None:
            return None
        if _NOT_SIMPLE.search(result):
            raise KerberosNameError(f"Non-simple name {result} after auth_to_local rule {self.text}")
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _replaced(self, match: re.Match[str]) -> str:
        def expanded(found: re.Match[str]) -> str:
            return found["literal"] if found["literal"] is not None else match[int(found["group"])] or ""

        return _REFERENCE.sub(expanded, self.replacement)


class KerberosShortNamer:
    """The parsed rules. Raises ConfigError if a rule is malformed."""

    def __init__(self, default_realm: str, rules: Sequence[str] = ("DEFAULT",)) -> None:
        self._default_realm = default_realm
        self._rules = [_parse(rule) for rule in rules]

    def short_name(self, name: KerberosName) -> str:
        """The user name. A name without realm is the user name. Raises KerberosNameError."""
        if name.host is None and name.realm is None:
            return name.service
        parameters = [name.realm or "", name.service, *(() if name.host is None else (name.host,))]
        for rule in self._rules:
            result = rule.apply(parameters, self._default_realm)
            if result is not None:
                return result
        raise KerberosNameError(
            f"No rule of {CONFIG} applies to {name} (the default realm is {self._default_realm or 'unknown'}). Add a "
            "rule, for example RULE:[1:$1] for principals with one component."
        )


def _parse(text: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"{CONFIG}: {text!r} is not a rule. A rule is DEFAULT or RULE:[components:format](expression)s/from/to/g"
            " with /L or /U at the end for lower or upper case."
        )
    if text == "DEFAULT":
        return _Rule(text, 0, "", None, None, "", False, "")
    components = int(found["components"])
    for number in _PARAMETER.findall(found["format"]):
        if not number or int(number) > components:
            raise ConfigError(
                f"{CONFIG}: ${number} in {text!r} must be $0, the realm, or a component up to ${components}."
            )
    substitute = _compiled(text, found["from"])
    replacement = found["to"] or ""
    groups = 0 if substitute is None else substitute.groups
    for reference in _REFERENCE.finditer(replacement):
        if reference["group"] is not None and int(reference["group"]) > groups:
            raise ConfigError(f"{CONFIG}: {reference[0]} in {text!r} has no group in s/{found['from']}/.")
    match = _compiled(text, found["match"])
    return _Rule(
        text, components, found["format"], match, substitute, replacement, bool(found["repeat"]), found["case"] or ""
    )


def _compiled(rule: str, expression: str | None) -> re.Pattern[str] | None:
    if expression is None:
        return None
    try:
        return re.compile(expression)
    except re.error as error:
        raise ConfigError(f"{CONFIG}: {expression!r} in {rule!r} is not a regular expression: {error}.") from error
