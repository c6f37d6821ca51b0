"""Value: subjects and the contexts they live in.

A context is a registry within the registry, with schema ids of its own. The subject `orders-value` of context
`.staging` is written `:.staging:orders-value`; without such a prefix a subject lives in the default context, `.`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
ANY_CONTEXT: Final = ":*:"
GLOBAL_RESOURCE: Final = "__GLOBAL"
EMPTY_RESOURCE: Final = "__EMPTY"
_RESERVED: Final = (GLOBAL_RESOURCE, EMPTY_RESOURCE)


class Subject(NamedTuple):
    """A subject in its context."""

    context: str
    name: str

    def __str__(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"


def parse_subject(text: str) -> Subject:
    """`orders` or `:.ctx:orders`; `:.ctx:` alone names the context (its subject is empty)."""
    if text.startswith(":."):
        context, colon, name = text[1:].partition(":")
        if colon:
            return Subject(context, name)
        return Subject(text[1:], "")
    return Subject(DEFAULT_CONTEXT, text)


def qualify(text: str, context: str) -> str:
    """A subject as seen from `context`, in its one canonical writing."""
    subject = parse_subject(text)
    if subject.context == DEFAULT_CONTEXT and context != DEFAULT_CONTEXT and not text.startswith(":."):
        subject = Subject(context, subject.name)
    return str(subject)


def context_of(text: str) -> str:
    return parse_subject(text).context


def is_valid(text: str) -> bool:
    """Whether schemas may be registered under it."""
    if text.startswith(":") and not text.startswith(":."):
        return False
    name = parse_subject(text).name
    return bool(name) and name not in _RESERVED and not any(ord(letter) < 32 for letter in name)
