"""Machine: tokens without a signature, for development and tests: how a client makes one, and how a server checks one.

Any client can make such a token for any user. The options are those of Kafka's `OAuthBearerLoginModule`, and those of
`sasl.oauthbearer.config` in librdkafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.protocol.security.oauth.messages import OAuthMessageError, check_extensions
from barnabas.protocol.security.oauth.tokens import (
    BearerToken,
    TokenError,
    decode_token,
    encode_part,
    scope_claim,
    text_claim,
    time_claim_ms,
)

LOGIN: Final = "unsecuredLogin"
VALIDATOR: Final = "unsecuredValidator"
_LIFETIME_S: Final = 3600
_INTEGER_MAX: Final = 1_000_000_000
_CALCULATED: Final = frozenset({"iat", "exp"})
_LOGIN_OPTIONS: Final = ("PrincipalClaimName", "ScopeClaimName", "LifetimeSeconds")
_LOGIN_PREFIXES: Final = ("StringClaim_", "NumberClaim_", "ListClaim_", "Extension_")
_VALIDATOR_OPTIONS: Final = ("PrincipalClaimName", "ScopeClaimName", "RequiredScope", "AllowableClockSkewMs")
_LIBRDKAFKA: Final = ("principal", "principalClaimName", "scope", "scopeClaimName", "lifeSeconds")


class UnsecuredLogin(Struct, frozen=True):
    """How a client makes its tokens."""

    claims: tuple[tuple[str, str | float | tuple[str, ...]], ...]
    principal_claim: str = "sub"
    lifetime_s: int = _LIFETIME_S

    def token(self, wall_ms: int) -> BearerToken:
        """A token that is valid from now on."""
        claims: dict[str, Any] = {"iat": wall_ms / 1000, "exp": wall_ms / 1000 + self.lifetime_s, **dict(self.claims)}
        text = f"{encode_part({'alg': 'none'})}.{encode_part(claims)}."
        principal = text_claim(claims, self.principal_claim)
        return BearerToken(text, principal, wall_ms + 1000 * self.lifetime_s, wall_ms)


class UnsecuredValidator(Struct, frozen=True):
    """How a server checks tokens that have no signature (Kafka's OAuthBearerUnsecuredValidatorCallbackHandler)."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    allowable_clock_skew_ms: int = 0

    def validate(self, text: str, wall_ms: int) -> BearerToken:
        """Raises TokenError."""
        token = decode_token(text)
        if token.header.get("alg") != "none":
            raise TokenError("the token is signed, and this listener accepts unsecured tokens only")
        if token.signature:
            raise TokenError("the token has the algorithm none, and a signature")
        claims, skew_ms = token.claims, self.allowable_clock_skew_ms
        principal = text_claim(claims, self.principal_claim)
        issued_at_ms, expires_at_ms = time_claim_ms(claims, "iat"), time_claim_ms(claims, "exp")
        if issued_at_ms is not None and issued_at_ms > wall_ms + skew_ms:
            raise TokenError("the token was issued in the future: the clocks of the client and the broker differ")
        if expires_at_ms is None:
            raise TokenError("the claim exp is missing")
        if wall_ms - skew_ms >= expires_at_ms:
            raise TokenError("the token has expired")
        if issued_at_ms is not None and expires_at_ms <= issued_at_ms:
            raise TokenError("the claim exp is not after the claim iat")
        missing = set(self.required_scope) - scope_claim(claims, self.scope_claim)
        if missing:
            raise TokenError(f"the token lacks the scope {sorted(missing)[0]!r}", scope=" ".join(self.required_scope))
        return BearerToken(text, principal, expires_at_ms, issued_at_ms)


def has_options(options: Iterable[str], kind: str) -> bool:
    """Whether one of the options of a login module is for unsecured tokens; `kind` is LOGIN or VALIDATOR."""
    return any(name.startswith(kind) for name in options)


def unsecured_validator(options: Mapping[str, str], setting: str) -> UnsecuredValidator:
    """From the options of the login module in `setting`. Raises ConfigError."""
    found = _options(options, VALIDATOR, _VALIDATOR_OPTIONS, (), setting)
    skew_ms = _integer(found.get("AllowableClockSkewMs", ""), f"{VALIDATOR}AllowableClockSkewMs", setting, 0)
    return UnsecuredValidator(
        found.get("PrincipalClaimName") or "sub",
        found.get("ScopeClaimName") or "scope",
        tuple(dict.fromkeys(found.get("RequiredScope", "").split())),
        skew_ms,
    )


def unsecured_login(options: Mapping[str, str], setting: str) -> tuple[UnsecuredLogin, tuple[tuple[str, str], ...]]:
    """The login and its extensions, from the options of the login module in `setting`. Raises ConfigError."""
    found = _options(options, LOGIN, _LOGIN_OPTIONS, _LOGIN_PREFIXES, setting)
    claims: dict[str, str | float | tuple[str, ...]] = {}
    extensions: dict[str, str] = {}
    for option, value in found.items():
        kind, _, name = option.partition("_")
        full = f"{LOGIN}{option}"
        if kind == "StringClaim":
            claims[_claim_name(name, full, setting)] = value
        elif kind == "ListClaim":
            claims[_claim_name(name, full, setting)] = _list(value)
        elif kind == "NumberClaim":
            claims[_claim_name(name, full, setting)] = _number(value, full, setting)
        elif kind == "Extension":
            extensions[name] = value
    principal_claim = found.get("PrincipalClaimName") or "sub"
    principal = claims.get(principal_claim)
    if not isinstance(principal, str) or not principal.strip():
        raise _error(setting, f'the name of the user is missing: add {LOGIN}StringClaim_{principal_claim}="NAME"')
    lifetime_s = _integer(found.get("LifetimeSeconds", ""), f"{LOGIN}LifetimeSeconds", setting, _LIFETIME_S)
    _check_extensions(extensions, setting)
    return UnsecuredLogin(tuple(claims.items()), principal_claim, lifetime_s), tuple(extensions.items())


def librdkafka_login(text: str) -> tuple[UnsecuredLogin, tuple[tuple[str, str], ...]]:
    """The login and its extensions, from `principal=alice scope=a,b lifeSeconds=600 extension_traceId=1`, the value of
    sasl.oauthbearer.config. Raises ConfigError."""
    setting = "sasl.oauthbearer.config"
    found: dict[str, str] = {}
    extensions: dict[str, str] = {}
    for part in text.split():
        name, equals, value = part.partition("=")
        if name.startswith("extension_"):
            extensions[name.removeprefix("extension_")] = value
        elif not equals or name not in _LIBRDKAFKA or name in found:
            raise _error(setting, f"{name[:64]!r} is unknown or repeated; the names are {', '.join(_LIBRDKAFKA)}")
        else:
            found[name] = value
    if not found.get("principal"):
        raise _error(setting, "the name of the user is missing: add principal=NAME")
    principal_claim = found.get("principalClaimName") or "sub"
    claims: dict[str, str | float | tuple[str, ...]] = {principal_claim: found["principal"]}
    if found.get("scope"):
        claims[found.get("scopeClaimName") or "scope"] = tuple(found["scope"].split(","))
    lifetime_s = _integer(found.get("lifeSeconds", ""), "lifeSeconds", setting, _LIFETIME_S)
    _check_extensions(extensions, setting)
    return UnsecuredLogin(tuple(claims.items()), principal_claim, lifetime_s), tuple(extensions.items())


# ---- inside


def _options(
    options: Mapping[str, str], kind: str, names: tuple[str, ...], prefixes: tuple[str, ...], setting: str
) -> dict[str, str]:
    """The options of one kind without the kind; blank ones of `names` are left out, as in Kafka."""
    found: dict[str, str] = {}
    for full, value in options.items():
        if not full.startswith(kind):
            continue
        name = full.removeprefix(kind)
        if name in names:
            if value.strip():
                found[name] = value.strip()
        elif any(name.startswith(prefix) and name != prefix for prefix in prefixes):
            found[name] = value
        else:
            known = ", ".join(f"{kind}{known}" for known in (*names, *(f"{prefix}NAME" for prefix in prefixes)))
            raise _error(setting, f"the option {full} is unknown; the options are {known}")
    return found


def _claim_name(name: str, option: str, setting: str) -> str:
    if name in _CALCULATED:
        raise _error(setting, f"{option} cannot be set, because the claim {name} is calculated")
    return name


def _list(value: str) -> tuple[str, ...]:
    """The first character separates the elements, as in `|a|b`."""
    return tuple(value[1:].split(value[0])) if len(value) > 1 else ()


def _integer(text: str, option: str, setting: str, default: int) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > 12 or int(text) > _INTEGER_MAX:
        raise _error(setting, f"{option} must be a whole number from 0 to {_INTEGER_MAX}")
    return int(text)


def _number(text: str, option: str, setting: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise _error(setting, f"{option} must be a number") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise _error(setting, f"{option} must be a number")
    return number


def _check_extensions(extensions: Mapping[str, str], setting: str) -> None:
    try:
        check_extensions(extensions)
    except OAuthMessageError as error:
        raise _error(setting, str(error)) from error


def _error(setting: str, reason: str) -> ConfigError:
    return ConfigError(f"{setting}: {reason}.")
