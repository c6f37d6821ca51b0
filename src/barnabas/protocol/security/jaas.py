"""Codec: the value of `sasl.jaas.config`: one entry of a Java login configuration file.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="broker" password="s3cret"
        user_alice="alices-password";

The grammar is that of Kafka's `JaasConfig`: a class, a flag, options, and a semicolon. A value is a word, or a text in
single or double quotes with backslash escapes. `//` and `/* */` begin comments. Where Kafka skips or misreads a part
without an error, such as a text after a single slash, `parse_jaas` raises an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from barnabas.core.config import ConfigError

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_USER: Final = "user_"
_TOKEN: Final = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<word>[A-Za-z_$\x80-\U0010ffff][\w$.\-]*)
    |(?P<mark>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasEntry(Struct, frozen=True):
    """A login module and its options. The options contain passwords, so `repr` shows their names only."""

    login_module: str
    flag: str
    options: Mapping[str, str]

    @property
    def username(self) -> str | None:
        """The name with which this end authenticates when it connects to another node."""
        return self.options.get("username")

    @property
    def password(self) -> str | None:
        return self.options.get("password")

    @property
    def tokenauth(self) -> bool:
        """Whether `username` and `password` are the id and the HMAC of a delegation token (KIP-48)."""
        return self.options.get("tokenauth", "").lower() == "true"

    def users(self) -> dict[str, str]:
        """The passwords of the users that the options `user_NAME="PASSWORD"` define, by name."""
        return {name.removeprefix(_USER): value for name, value in self.options.items() if name.startswith(_USER)}

    def __repr__(self) -> str:
        return f"JaasEntry({self.login_module}, options={sorted(self.options)})"


class _Token(NamedTuple):
    text: str
    is_mark: bool
    offset: int


def parse_jaas(text: str, config: str = "sasl.jaas.config") -> JaasEntry:
    """Parse the value of the config named `config`. Raises ConfigError; the message never contains an option's value,
    because the value may be a password."""
    tokens = _tokens(text, config)
    words = iter(tokens)
    module = _next_text(words, config, "the class of a login module")
    flag = _next_text(words, config, "one of required, requisite, sufficient and optional").lower()
    if flag not in _FLAGS:
        raise _error(config, f"the flag after {module} must be required, requisite, sufficient or optional")
    options: dict[str, str] = {}
    for token in words:
        if token.is_mark and token.text == ";":
            if next(words, None) is not None:
                raise _error(config, f"only one login module is allowed; remove what follows offset {token.offset}")
            return JaasEntry(module, flag, options)
        if token.is_mark:
            raise _error(config, f"the name of an option is missing before '=' at offset {token.offset}")
        equals, value = next(words, None), next(words, None)
        if equals is None or not equals.is_mark or equals.text != "=" or value is None or value.is_mark:
            raise _error(config, f'the option {token.text!r} has no value; write {token.text}="value"')
        options[token.text] = value.text
    raise _error(config, "the entry must end with a semicolon")


def _tokens(text: str, config: str) -> list[_Token]:
    tokens: list[_Token] = []
    offset = 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            kind = "a text in quotes does not end" if text[offset] in "\"'" else "a character is not allowed"
            raise _error(config, f"{kind} at offset {offset}; put values that are not plain words in double quotes")
        if match["quoted"] is not None:
            tokens.append(_Token(_ESCAPE.sub(_unescaped, match["quoted"][1:-1]), False, offset))
        elif match["word"] is not None:
            tokens.append(_Token(match["word"], False, offset))
        elif match["mark"] is not None:
            tokens.append(_Token(match["mark"], True, offset))
        offset = match.end()
    return tokens


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPES.get(code, code)


def _next_text(words: Iterator[_Token], config: str, expected: str) -> str:
    token = next(words, None)
    if token is None or token.is_mark:
        raise _error(config, f"{expected} is missing")
    return token.text


def _error(config: str, reason: str) -> ConfigError:
    return ConfigError(
        f"{config} cannot be parsed: {reason}. The form is:"
        ' org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    )
