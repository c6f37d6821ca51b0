"""Machine: regular expressions over topic names, matched in linear time whatever the pattern.

Consumers send patterns to the broker (KIP-848), so a pattern must not be able to hold the event loop: Python's `re`
backtracks, and `(a+)+b` against a long name takes for ever. Kafka uses RE2/J; this is the same idea in small: parse to
a tree, compile to a non-deterministic automaton, walk all its states at once. A match takes at most states x characters
steps.

    alternation   a|b      repetition  * + ? {n} {n,} {n,m}, each also lazy (the same here)
    grouping      (x) (?:x) (?P<n>x) (?i)      classes  [a-z] [^a-z] [[:alpha:]] . \\d \\w \\s \\D \\W \\S
    anchors       ^ $ \\A \\z      escapes  \\. \\t \\n \\x2e \\Q...\\E

As in Kafka the whole name must match. Back references and look-around are refused, as in RE2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct, field

from barnabas.core.errors import ErrorCode, KafkaError

PATTERN_LENGTH_MAX: Final = 1_000
STATES_MAX: Final = 10_000
REPEATS_MAX: Final = 1_000
"""RE2's own limit for {n,m}."""

Test = Callable[[str], bool]

_CLASSES: Final[dict[str, Test]] = {
    "d": lambda c: "0" <= c <= "9",
    "w": lambda c: c == "_" or (c.isascii() and c.isalnum()),
    "s": lambda c: c in " \t\n\f\r\v",
}
_NAMED: Final[dict[str, Test]] = {
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "digit": _CLASSES["d"],
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "lower": lambda c: "a" <= c <= "z",
    "upper": lambda c: "A" <= c <= "Z",
    "punct": lambda c: c.isascii() and c.isprintable() and not c.isalnum() and c != " ",
    "space": _CLASSES["s"],
    "word": _CLASSES["w"],
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


def bad(pattern: str, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{pattern}` is not a valid expression: {why}."
    )


class TopicRegex:
    """A compiled pattern. Raises KafkaError INVALID_REGULAR_EXPRESSION."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise bad(pattern[:50] + "...", f"it is longer than {PATTERN_LENGTH_MAX} characters")
        self.pattern = pattern
        self._automaton = _Automaton(pattern)
        start = self._automaton.build(_Parser(pattern).parse())
        self._start = start

    def matches(self, name: str) -> bool:
        """Whether the whole of `name` matches."""
        return self._automaton.run(self._start, name)

    def select(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if self.matches(name))


# -- the tree --------------------------------------------------------------------------------------------------------


class _Char(Struct, frozen=True):
    test: Test


class _Anchor(Struct, frozen=True):
    at_end: bool


class _Sequence(Struct, frozen=True):
    parts: list[_Node] = field(default_factory=list)


class _Choice(Struct, frozen=True):
    options: list[_Node]


class _Repeat(Struct, frozen=True):
    node: _Node
    least: int
    most: int | None


_Node = _Char | _Anchor | _Sequence | _Choice | _Repeat


class _Parser:
    """Recursive descent, as deep as the pattern has parentheses."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._pos = 0
        self._depth = 0
        self._fold_case = False

    def parse(self) -> _Node:
        node = self._choice()
        if self._pos < len(self._pattern):
            raise self._bad("there is a ) without its (")
        return node

    def _bad(self, why: str) -> KafkaError:
        return bad(self._pattern, why)

    def _peek(self) -> str:
        return self._pattern[self._pos] if self._pos < len(self._pattern) else ""

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise self._bad("it ends too early")
        self._pos += 1
        return char

    def _try(self, text: str) -> bool:
        if self._pattern.startswith(text, self._pos):
            self._pos += len(text)
            return True
        return False

    def _choice(self) -> _Node:
        options = [self._sequence()]
        while self._try("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else _Choice(options)

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            if self._try("\\Q"):
                quoted, _, _ = self._pattern[self._pos :].partition("\\E")
                self._pos += len(quoted) + (2 if self._pos + len(quoted) < len(self._pattern) else 0)
                parts.extend(self._literal(char) for char in quoted)
                if quoted:
                    parts.append(self._repeats(parts.pop()))  # a repetition is the last character's alone
                continue
            node = self._atom()
            if node is not None:
                parts.append(self._repeats(node))
        return parts[0] if len(parts) == 1 else _Sequence(parts)

    def _repeats(self, node: _Node) -> _Node:
        while True:
            least, most = self._repeat_bounds()
            if least < 0:
                return node
            if isinstance(node, _Anchor):
                raise self._bad("there is nothing to repeat before a repetition")
            self._try("?")  # lazy: for a match of the whole it makes no difference
            node = _Repeat(node, least, most)

    def _repeat_bounds(self) -> tuple[int, int | None]:
        """(-1, None) when no repetition follows."""
        if self._try("*"):
            return 0, None
        if self._try("+"):
            return 1, None
        if self._try("?"):
            return 0, 1
        end = self._pattern.find("}", self._pos)
        if self._peek() != "{" or end < 0:
            return -1, None
        low, comma, high = self._pattern[self._pos + 1 : end].partition(",")
        if not (low.isdecimal() and (not high or high.isdecimal())):
            return -1, None  # a literal brace
        self._pos = end + 1
        least, most = int(low), (int(high) if high else None) if comma else int(low)
        if least > REPEATS_MAX or (most is not None and not least <= most <= REPEATS_MAX):
            raise self._bad(f"a repetition must count up, and to {REPEATS_MAX} at most")
        return least, most

    def _atom(self) -> _Node | None:
        """None for what matches nothing by itself: flags."""
        char = self._take()
        match char:
            case "(":
                return self._group()
            case "[":
                return _Char(self._char_class())
            case ".":
                return _Char(lambda c: c != "\n")
            case "^":
                return _Anchor(at_end=False)
            case "$":
                return _Anchor(at_end=True)
            case "*" | "+" | "?":
                raise self._bad("there is nothing to repeat before a repetition")
            case "\\":
                return self._escape()
        return self._literal(char)

    def _group(self) -> _Node | None:
        self._depth += 1
        if self._depth > 100:
            raise self._bad("groups are nested more than 100 deep")
        folded = self._fold_case
        if self._try("?P<") or (self._pattern.startswith("?<", self._pos) and self._named()):
            name_end = self._pattern.find(">", self._pos)
            if name_end < 0:
                raise self._bad("a group's name does not end")
            self._pos = name_end + 1
        elif self._try("?"):
            flags = ""
            while self._peek() not in (":", ")"):
                flags += self._take()
            if not set(flags) <= set("imsU-"):
                raise self._bad("it looks around or uses an unknown flag")
            on, _, off = flags.partition("-")
            self._fold_case = ("i" in on or self._fold_case) and "i" not in off
            if self._take() == ")":  # the flags hold to the end of the enclosing group
                self._depth -= 1
                return None
        node = self._choice()
        if not self._try(")"):
            raise self._bad("there is a ( without its )")
        self._fold_case = folded
        self._depth -= 1
        return node

    def _named(self) -> bool:
        """`(?<name>`, and not `(?<=` or `(?<!`, which look behind."""
        if self._pattern[self._pos + 2 : self._pos + 3] in ("=", "!"):
            return False
        self._pos += 2
        return True

    def _literal(self, char: str) -> _Node:
        return _Char(self._one(char))

    def _one(self, char: str) -> Test:
        if self._fold_case and char.lower() != char.upper():
            both = char.lower() + char.upper()
            return lambda c: c in both
        return lambda c: c == char

    def _escape(self) -> _Node:
        char = self._take()
        if char in ("A", "z"):
            return _Anchor(at_end=char == "z")
        return _Char(self._escaped_test(char))

    def _escaped_test(self, char: str) -> Test:
        if char.lower() in _CLASSES:
            test = _CLASSES[char.lower()]
            return test if char.islower() else (lambda c: not test(c))
        return self._one(self._escaped_char(char))

    def _escaped_char(self, char: str) -> str:
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            digits = self._pattern[self._pos : self._pos + 2]
            if len(digits) < 2 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise self._bad("\\x needs two hexadecimal digits")
            code = int(digits, 16)
            self._pos += 2
            return chr(code)
        if char.isalnum():
            raise self._bad(f"\\{char} is not supported")
        return char

    def _char_class(self) -> Test:
        negated = self._try("^")
        tests: list[Test] = []
        first = True
        while first or self._peek() != "]":
            first = False
            if self._try("[:"):
                tests.append(self._named_class())
                continue
            char = self._take()
            if char == "\\":
                char = self._take()
                if char.lower() in _CLASSES:
                    tests.append(self._escaped_test(char))
                    continue
                char = self._escaped_char(char)
            tests.append(self._range(char))
        self._take()
        return (lambda c: not any(test(c) for test in tests)) if negated else (lambda c: any(t(c) for t in tests))

    def _named_class(self) -> Test:
        end = self._pattern.find(":]", self._pos)
        name = self._pattern[self._pos : max(end, self._pos)]
        test = _NAMED.get(name.removeprefix("^"))
        if test is None:
            raise self._bad(f"there is no class [:{name}:]")
        self._pos = end + 2
        return (lambda c: not test(c)) if name.startswith("^") else test

    def _range(self, low: str) -> Test:
        if self._peek() != "-" or self._pattern[self._pos + 1 : self._pos + 2] in ("]", ""):
            return self._one(low)
        self._take()
        high = self._take()
        if high == "\\":
            high = self._escaped_char(self._take())
        if high < low:
            raise self._bad(f"the range {low}-{high} runs backwards")
        if self._fold_case:
            return lambda c: low <= c.lower() <= high or low <= c.upper() <= high
        return lambda c: low <= c <= high


# -- the automaton ---------------------------------------------------------------------------------------------------


class _Automaton:
    """Thompson's construction. A state either tests a character, splits, or stands at an anchor; 0 is the match."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._tests: list[Test | None] = [None]
        self._anchors: list[bool | None] = [None]
        self._next: list[list[int]] = [[]]

    def build(self, node: _Node) -> int:
        """The state to start from."""
        return self._add(node, 0)

    def _state(self, following: list[int], test: Test | None = None, anchor: bool | None = None) -> int:
        if len(self._next) >= STATES_MAX:
            raise bad(self._pattern, "its repetitions unfold to too much")
        self._tests.append(test)
        self._anchors.append(anchor)
        self._next.append(following)
        return len(self._next) - 1

    def _add(self, node: _Node, following: int) -> int:
        match node:
            case _Char(test):
                return self._state([following], test)
            case _Anchor(at_end):
                return self._state([following], anchor=at_end)
            case _Sequence(parts):
                for part in reversed(parts):
                    following = self._add(part, following)
                return following
            case _Choice(options):
                return self._state([self._add(option, following) for option in options])
            case _Repeat(inner, least, most):
                if most is None:
                    loop = self._state([])
                    self._next[loop] = [self._add(inner, loop), following]
                    following = loop
                else:
                    for _ in range(most - least):
                        following = self._state([self._add(inner, following), following])
                for _ in range(least):
                    following = self._add(inner, following)
                return following

    def run(self, start: int, text: str) -> bool:
        current = self._closure([start], at_start=True, at_end=not text)
        for i, char in enumerate(text):
            reached = [
                state
                for at in current
                if (test := self._tests[at]) is not None and test(char)
                for state in self._next[at]
            ]
            if not reached:
                return False
            current = self._closure(reached, at_start=False, at_end=i == len(text) - 1)
        return 0 in current

    def _closure(self, states: list[int], *, at_start: bool, at_end: bool) -> set[int]:
        """Everything that can be reached without a character."""
        seen: set[int] = set()
        stack = states
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            if self._tests[state] is not None:
                continue
            anchor = self._anchors[state]
            if anchor is None or (at_end if anchor else at_start):
                stack.extend(self._next[state])
        return seen
