"""Machine: both ends of the SASL mechanism GSSAPI (RFC 4752), over a security context of GSS-API.

    client                                              server
      token of the context                         ->
                                                   <-     token of the context, while it has more
      empty, once its context is complete          ->
                                                   <-     wrapped: the layers that it supports, 3 bytes of a size
      wrapped: the layer that it has chosen,       ->
      3 bytes of a size, an authorization id
                                                   <-     empty

Kafka uses no security layer of SASL: TLS protects the connection. Tickets and keys are behind the port `GssContext`.
"""

from __future__ import annotations

from typing import Final, Protocol

from barnabas.core.errors import BarnabasError

NO_LAYER: Final = 1
"""The bit of "no security layer" in the first byte of both wrapped messages."""
_SIZES: Final = bytes(3)
"""The largest message of a layer: 0, because there is no layer."""
_OFFER_BYTES: Final = 4


class GssError(BarnabasError):
    """The other end did not follow the mechanism, or its ticket is not valid."""


class GssContext(Protocol):
    """A security context of GSS-API. The methods raise GssError. `step` may wait for a server of tickets."""

    @property
    def complete(self) -> bool: ...

    @property
    def initiator(self) -> str:
        """The Kerberos principal of the client, once the context is complete."""
        ...

    def step(self, token: bytes | None) -> bytes | None:
        """The next token for the other end, or None."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """The message with a proof that it comes from this end, not encrypted."""
        ...

    def unwrap(self, message: bytes) -> bytes: ...


class GssClientExchange:
    """The client's end."""

    def __init__(self, context: GssContext) -> None:
        self.done = False
        """True if this end has no more message to send."""
        self._context = context

    def first(self) -> bytes:
        return self._context.step(None) or b""

    def next(self, challenge: bytes) -> bytes:
        """The answer to a message of the server. Raises GssError."""
        if not self._context.complete:
            return self._context.step(challenge) or b""
        offer = self._context.unwrap(challenge)
        if len(offer) != _OFFER_BYTES or not offer[0] & NO_LAYER:
            raise GssError("The server insists on a security layer of SASL, which Kafka does not use.")
        self.done = True
        return self._context.wrap(bytes((NO_LAYER,)) + _SIZES)

    def verify(self, final: bytes) -> None:
        if final:
            raise GssError("The server sent a message after the end of the exchange.")


class GssServerExchange:
    """The server's end."""

    def __init__(self, context: GssContext) -> None:
        self.initiator: str | None = None
        """The Kerberos principal of the client; None until the exchange is complete."""
        self._context = context
        self._offered = False

    def evaluate(self, message: bytes) -> bytes:
        """The answer to the client's next message. Raises GssError."""
        context = self._context
        if self._offered:
            self._check_choice(context.unwrap(message))
            self.initiator = context.initiator
            return b""
        if not context.complete:
            answer = context.step(message)
            if answer or not context.complete:
                return answer or b""
        elif message:
            raise GssError("The client sent a token after its context was complete.")
        self._offered = True
        return context.wrap(bytes((NO_LAYER,)) + _SIZES)

    def _check_choice(self, choice: bytes) -> None:
        if len(choice) < _OFFER_BYTES or choice[0] != NO_LAYER:
            raise GssError("The client has chosen a security layer of SASL, which Kafka does not use.")
        try:
            authorization_id = choice[_OFFER_BYTES:].decode()
        except UnicodeDecodeError:
            raise GssError("The authorization id of the client is not UTF-8.") from None
        if authorization_id and authorization_id != self._context.initiator:
            raise GssError(f"The client {self._context.initiator} may not act as {authorization_id!r}.")
