"""Value: subjects and contexts.

A context is a namespace with its own subjects and schema ids. The subject `orders-value` in the context `.staging` is
written `:.staging:orders-value`; a subject without such a prefix is in the default context, `.`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
ANY_CONTEXT: Final = ":*:"
GLOBAL_RESOURCE: Final = "__GLOBAL"
EMPTY_RESOURCE: Final = "__EMPTY"
_RESERVED: Final = (GLOBAL_RESOURCE, EMPTY_RESOURCE)


class Subject(NamedTuple):
    """A subject's name and its context."""

    context: str
    name: str

    def __str__(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"


def parse_subject(text: str) -> Subject:
    """Parse `orders` or `:.ctx:orders`. `:.ctx:` is the context itself, with an empty subject name."""
    if text.startswith(":."):
        context, colon, name = text[1:].partition(":")
        if colon:
            return Subject(context, name)
        return Subject(text[1:], "")
    return Subject(DEFAULT_CONTEXT, text)


def qualify(text: str, context: str) -> str:
    """The canonical form of a subject. `context` applies if the subject has no context prefix."""
    subject = parse_subject(text)
    if subject.context == DEFAULT_CONTEXT and context != DEFAULT_CONTEXT and not text.startswith(":."):
        subject = Subject(context, subject.name)
    return str(subject)


def context_of(text: str) -> str:
    return parse_subject(text).context


def is_valid(text: str) -> bool:
    """Whether schemas may be registered under this subject."""
    if text.startswith(":") and not text.startswith(":."):
        return False
    name = parse_subject(text).name
    return bool(name) and name not in _RESERVED and not any(ord(letter) < 32 for letter in name)
