"""`Re2Pattern`: which names match, which patterns are invalid, and that matching takes linear time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.regex import PATTERN_LENGTH_MAX, Re2Pattern

NAMES = ["", "a", "ab", "abc", "aab", "b", "B", "orders.v1", "orders-v2", "x1", "x12", "_", "a\nb", "aaaa"]

PATTERNS = [
    "a", "ab*", "a+b?", "(ab|abc)", "a|", "", ".*", ".+", "[a-c]+", "[^a]*", "orders.*", r"orders\.v\d",
    r"orders[.-]v\w+",
    "^a", "a$", "^(a|b)$", "x{1}1", "a{2}", "a{2,}", "a{1,3}b?", "(?:a)(?:b)", "(?P<n>ab)c", "(?i)b", "(?i:A)b",
    r"\Aab\z".replace("z", "Z"), r"[\w.]+", "a*?b", "a{,2}", "[]a]+", "[a-]+", "(a*)*",
    "(a|aa)+", r"\x61b", "x[0-9]{1,2}",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_full_match_agrees_with_python_re(pattern: str) -> None:
    compiled = Re2Pattern(pattern.replace(r"\Z", r"\z"))
    reference = re.compile(pattern)
    for name in NAMES:
        # In RE2 `{,2}` is literal text; in Python it is a repetition with the lower bound 0.
        expected = name == pattern if pattern == "a{,2}" else reference.fullmatch(name) is not None
        assert compiled.matches(name) == expected, (pattern, name)


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "*", "a**b(", "[a", "[z-a]", r"\1", r"(a)\1", "(?=a)", "(?<!a)", "(?<=a)b", r"\pN{1000}", "a{5,2}",
     "a{2000}", r"\x4", "a\\", "[[:nonsense:]]", "(?x)a", "((a{500}){500}){500}", "(" * 5000],
)  # fmt: skip
def test_invalid_pattern_raises_invalid_regular_expression(pattern: str) -> None:
    with pytest.raises(KafkaError) as error:
        Re2Pattern(pattern)
    assert error.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_error_text_names_the_pattern_and_the_reason() -> None:
    with pytest.raises(
        KafkaError, match=r"`a\(b` is not a valid regular expression \(RE2 syntax\): missing \): a\(b\."
    ):
        Re2Pattern("a(b")


def test_pattern_longer_than_the_limit_is_invalid() -> None:
    assert Re2Pattern("x" * PATTERN_LENGTH_MAX).matches("x" * PATTERN_LENGTH_MAX)
    with pytest.raises(KafkaError, match="longer than 1000 characters"):
        Re2Pattern("x" * (PATTERN_LENGTH_MAX + 1))


def test_pattern_whose_program_exceeds_the_memory_limit_is_invalid() -> None:
    with pytest.raises(KafkaError, match="pattern too large"):
        Re2Pattern("[^a]{1000}[^b]{1000}[^c]{1000}")


def test_re2_syntax_that_python_lacks() -> None:
    assert Re2Pattern("[[:alpha:]]+").matches("abc")
    assert Re2Pattern(r"\Qa.b\E+").matches("a.bb")
    assert not Re2Pattern(r"\Qa.b\E").matches("axb")
    assert Re2Pattern("(?<name>a)").matches("a")
    assert Re2Pattern("a|b").select(["b", "c", "a"]) == ("b", "a")
    assert Re2Pattern("\\p{L}+").matches("größe")
    assert Re2Pattern("größ.").matches("größe")


def test_patterns_that_backtrack_exponentially_match_in_linear_time() -> None:
    name = "a" * 249
    for pattern in ("(a+)+b", "(a*)*b", "(a|aa)+b", "a*a*a*a*a*a*a*a*b", "(.*)(.*)(.*)(.*)x", "(a?){200}a{200}b"):
        assert not Re2Pattern(pattern).matches(name)


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
def test_random_patterns_agree_with_python_re(pattern: str, name: str) -> None:
    assert Re2Pattern(pattern).matches(name) == (re.fullmatch(pattern, name) is not None)
