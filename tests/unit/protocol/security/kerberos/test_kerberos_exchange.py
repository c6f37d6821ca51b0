"""The exchange of the SASL mechanism GSSAPI, with contexts that do nothing but count their tokens."""

from __future__ import annotations

import pytest

from barnabas.protocol.security.kerberos.exchange import GssClientExchange, GssError, GssServerExchange


class Context:
    """A context that is complete after it has received `tokens` tokens. It sends a token, but for the last step of an
    end that is silent at the end."""

    def __init__(self, tokens: int, *, silent: bool = False) -> None:
        self.complete = False
        self.initiator = "alice@REALM"
        self._left = tokens
        self._silent = silent

    def step(self, token: bytes | None) -> bytes | None:
        assert not self.complete
        if token is not None:
            if not token.startswith(b"token"):
                raise GssError("not a token")
            self._left -= 1
        self.complete = self._left == 0
        return None if self.complete and self._silent else b"token"

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped" + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"wrapped"):
            raise GssError("not wrapped")
        return message.removeprefix(b"wrapped")


def talk(client: GssClientExchange, server: GssServerExchange) -> list[bytes]:
    """All messages of an exchange, the client's first."""
    messages = [client.first()]
    while True:
        messages.append(server.evaluate(messages[-1]))
        if client.done:
            client.verify(messages[-1])
            return messages
        messages.append(client.next(messages[-1]))


LAYER = b"wrapped\x01\0\0\0"


def test_with_mutual_authentication_the_server_answers_with_a_token() -> None:
    """Two tokens; the client's empty message asks for the offer of layers."""
    client, server = GssClientExchange(Context(1, silent=True)), GssServerExchange(Context(1))
    assert talk(client, server) == [b"token", b"token", b"", LAYER, LAYER, b""]
    assert server.initiator == "alice@REALM"


def test_without_it_the_offer_follows_the_first_token() -> None:
    """As Java's client asks for it."""
    client, server = GssClientExchange(Context(0)), GssServerExchange(Context(1, silent=True))
    assert talk(client, server) == [b"token", LAYER, LAYER, b""]
    assert server.initiator == "alice@REALM"


def test_a_context_may_need_more_tokens() -> None:
    client, server = GssClientExchange(Context(2, silent=True)), GssServerExchange(Context(2))
    assert talk(client, server) == [b"token", b"token", b"token", b"token", b"", LAYER, LAYER, b""]


def test_the_client_may_name_itself() -> None:
    server = GssServerExchange(Context(1, silent=True))
    server.evaluate(b"token")
    assert server.evaluate(LAYER + b"alice@REALM") == b""
    assert server.initiator == "alice@REALM"


@pytest.mark.parametrize(
    "choice",
    [
        b"", b"\x01\0\0\0", b"wrapped", b"wrapped\x01\0\0", b"wrapped\x02\0\0\0", b"wrapped\x03\0\0\0",
        LAYER + b"bob@REALM", LAYER + b"\xff",
    ],
)  # fmt: skip
def test_a_wrong_choice_of_the_client_is_refused(choice: bytes) -> None:
    server = GssServerExchange(Context(1, silent=True))
    server.evaluate(b"token")
    with pytest.raises(GssError):
        server.evaluate(choice)
    assert server.initiator is None


@pytest.mark.parametrize("offer", [b"", b"wrapped", b"wrapped\x02\0\0\0", b"wrapped\x01\0\0\0x", b"\x01\0\0\0"])
def test_a_wrong_offer_of_the_server_is_refused(offer: bytes) -> None:
    client = GssClientExchange(Context(0))
    client.first()
    with pytest.raises(GssError):
        client.next(offer)
    assert not client.done


def test_messages_that_are_too_many_are_refused() -> None:
    server = GssServerExchange(Context(1))
    server.evaluate(b"token")
    with pytest.raises(GssError, match="after its context was complete"):
        server.evaluate(b"token")
    client = GssClientExchange(Context(0))
    client.first()
    client.next(LAYER)
    with pytest.raises(GssError, match="after the end"):
        client.verify(b"more")


def test_a_token_that_is_not_valid_is_refused() -> None:
    with pytest.raises(GssError):
        GssServerExchange(Context(1)).evaluate(b"nonsense")
