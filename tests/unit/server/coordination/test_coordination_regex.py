"""Expressions over topic names: what matches, what is refused, and that nothing takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.coordination.group.consumer.topic_regex import TopicRegex

NAMES = ["", "a", "ab", "abc", "aab", "b", "B", "orders.v1", "orders-v2", "x1", "x12", "_", "a\nb", "aaaa"]

PATTERNS = [
    "a", "ab*", "a+b?", "(ab|abc)", "a|", "", ".*", ".+", "[a-c]+", "[^a]*", "orders.*", r"orders\.v\d",
    r"orders[.-]v\w+",
    "^a", "a$", "^(a|b)$", "x{1}1", "a{2}", "a{2,}", "a{1,3}b?", "(?:a)(?:b)", "(?P<n>ab)c", "(?i)b", "(?i:A)b",
    r"\Aab\z".replace("z", "Z"), r"[\w.]+", "a*?b", "a{,2}", "[]a]+", "[a-]+", "(a*)*",
    "(a|aa)+", r"\x61b", "x[0-9]{1,2}",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_same_as_python(pattern: str) -> None:
    ours = TopicRegex(pattern.replace(r"\Z", r"\z"))
    theirs = re.compile(pattern)
    for name in NAMES:
        # An empty least bound is a literal brace in RE2, but not in Python.
        expected = name == pattern if pattern == "a{,2}" else theirs.fullmatch(name) is not None
        assert ours.matches(name) == expected, (pattern, name)


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "*", "a**b(", "[a", "[z-a]", r"\1", r"(a)\1", "(?=a)", "(?<!a)", "(?<=a)b", r"\p{L}", "a{5,2}",
     "a{2000}", r"\x4", "a\\", "[[:nonsense:]]", "(?x)a", "x" * 2000, "((a{500}){500}){500}", "(" * 200 + ")" * 200],
)  # fmt: skip
def test_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        TopicRegex(pattern)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_kafka_and_re2_forms() -> None:
    assert TopicRegex("[[:alpha:]]+").matches("abc")
    assert TopicRegex(r"\Qa.b\E+").matches("a.bb")
    assert not TopicRegex(r"\Qa.b\E").matches("axb")
    assert TopicRegex("(?<name>a)").matches("a")
    assert TopicRegex("a|b").select(["b", "c", "a"]) == ("b", "a")


def test_patterns_that_hang_a_backtracker_are_quick() -> None:
    name = "a" * 249
    for pattern in ("(a+)+b", "(a*)*b", "(a|aa)+b", "a*a*a*a*a*a*a*a*b", "(.*)(.*)(.*)(.*)x", "(a?){200}a{200}b"):
        assert not TopicRegex(pattern).matches(name)


@given(
    st.recursive(
        st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "^", "$", r"\d", "1"]).filter(lambda p: p not in "^$"),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}"])).map(lambda t: f"(?:{t[0]}){t[1]}"),
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda t: f"(?:{t[0]}|{t[1]})"),
        ),
        max_leaves=6,
    ),
    st.text("ab1", max_size=6),
)
@settings(max_examples=300, deadline=None)
def test_random_patterns_agree_with_python(pattern: str, name: str) -> None:
    assert TopicRegex(pattern).matches(name) == (re.fullmatch(pattern, name) is not None)
