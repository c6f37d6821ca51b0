"""Port: a class of a user that checks the tokens of OAUTHBEARER (`sasl.server.callback.handler.class`, KIP-255).

The config names a Python class, as `package.module:Class` or `package.module.Class`. Its constructor gets the configs
of the node and the options of the listener's `sasl.jaas.config`, both as texts. `TokenClass` protects the listener from
an answer that makes no sense, and from errors of the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

from barnabas.core.plugins import check_methods, load_class
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.oauth.tokens import BearerToken, TokenError

_PORT: Final = "barnabas.protocol.security.oauth.token_class.TokenChecker"
_BUILTIN: Final = "OAuthBearerValidatorCallbackHandler"

log = get_logger("barnabas.protocol.security")


class TokenChecker(Protocol):
    """Checks tokens. The method is called on the event loop and must not block."""

    def validate(self, text: str, wall_ms: int) -> BearerToken:
        """What the token says, with the name of the user as its principal. `wall_ms` is the time now. Raises TokenError
        if the token is refused; its text is logged, and the client learns no more than the status."""
        ...


def load_token_class(setting: str, name: str, configs: Mapping[str, str], options: Mapping[str, str]) -> TokenClass:
    """The class that `setting` names. Raises ConfigError."""
    checker = load_class(setting, name, _BUILTIN)(configs, options)
    check_methods(setting, checker, ("validate",), _PORT)
    return TokenClass(cast("TokenChecker", checker))


class TokenClass:
    """Checks tokens with the class of a user."""

    def __init__(self, checker: TokenChecker) -> None:
        self._checker = checker

    def validate(self, text: str, wall_ms: int) -> BearerToken:
        """Raises TokenError."""
        try:
            found: Any = self._checker.validate(text, wall_ms)
        except TokenError:
            raise
        except Exception as error:  # any error of the class of a user refuses this login only
            reason = f"{type(error).__name__}: {error}"
            log.warning("the class that checks tokens failed; the login is refused", reason=reason)
            raise TokenError(f"the class that checks tokens failed: {reason}") from error
        if not isinstance(found, BearerToken) or not found.principal.strip():
            raise TokenError("the class that checks tokens returned no BearerToken with a principal")
        if found.expires_at_ms <= wall_ms:
            raise TokenError("the token has expired")
        return found
