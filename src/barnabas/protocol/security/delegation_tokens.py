"""Machine: the secrets of delegation tokens (KIP-48): the HMAC of a token, and the logins that follow from it.

    HMAC of a token        = HMAC-SHA512(delegation.token.secret.key, token id)
    password of the token  = base64(HMAC), with the token id as the user name of SCRAM

The metadata of the cluster contain tokens without their HMACs. Every node with the secret key can compute them.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol

from barnabas.protocol.security import scram
from barnabas.protocol.security.credentials import (
    SCRAM_ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    SCRAM_SALT_BYTES,
    ScramCredential,
)
from barnabas.protocol.security.principals import parse_principal
from barnabas.protocol.security.sasl_server import TokenLogin

USER_TYPE: Final = "User"
"""The only type of principal that can log in, and so own or renew a token."""
_CREDENTIALS_MAX: Final = 10_000
"""The credentials that are kept, because each takes milliseconds to derive."""
_HASHES: Final = {number: scram.HASHES[name] for name, number in SCRAM_MECHANISMS.items()}


def hmac_of_token(secret_key: str, token_id: str) -> bytes:
    """The HMAC of a token: 64 bytes."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def token_password(token_hmac: bytes) -> str:
    """The password with which a client logs in with a token."""
    return base64.b64encode(token_hmac).decode()


class StoredToken(Protocol):
    """What a login needs of a token in the metadata of the cluster."""

    @property
    def owner(self) -> str:
        """The principal that the client becomes, for example `User:alice`."""
        ...

    @property
    def expiration_timestamp(self) -> int: ...


class TokenLogins:
    """The logins with the tokens of the cluster. `token` returns the token with an id, or None."""

    def __init__(self, secret_key: str, salt_key: bytes, token: Callable[[str], StoredToken | None]) -> None:
        """The salts are made from `salt_key`, random bytes of this process."""
        self._token = token

        @lru_cache(_CREDENTIALS_MAX)
        def credential(mechanism: int, token_id: str) -> ScramCredential:
            salt = hmac.digest(salt_key, token_id.encode(), "sha512")[:SCRAM_SALT_BYTES]
            password = token_password(hmac_of_token(secret_key, token_id))
            return scram.credential(_HASHES[mechanism], password, salt, SCRAM_ITERATIONS_MIN)

        self._credential = credential

    def find(self, mechanism: int, token_id: str) -> TokenLogin | None:
        """The login with a token, by the number of the SCRAM mechanism; None if there is no such token."""
        token = self._token(token_id)
        if token is None:
            return None
        try:
            owner = parse_principal(token.owner)
        except ValueError:
            return None
        if owner.kind != USER_TYPE:  # the client would become the user of the same name
            return None
        return TokenLogin(self._credential(mechanism, token_id), owner.name, token.expiration_timestamp)
