"""Codec: the Markdown of the documentation -> its code blocks and its code spans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).parents[3]
_PLACES: Final = ("*.md", "docs/**/*.md", "examples/**/*.md", "deploy/**/*.md", "bench/*.md", "src/**/README.md")
_INDENTED: Final = "indented"


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """One code block. `kind` is the word after the fence, or `indented`; `section` is the heading above the block."""

    page: str
    section: str
    kind: str
    text: str
    line: int

    @property
    def first_line(self) -> str:
        return next(iter(self.text.splitlines()), "")

    def __str__(self) -> str:
        return f"{self.page}:{self.line}, below {self.section!r}: {self.kind or 'no language'}: {self.first_line}"


@dataclass(frozen=True, slots=True)
class CodeSpan:
    """Text in backticks within a paragraph or a table."""

    page: str
    line: int
    text: str


def pages() -> list[Path]:
    """Every Markdown file that the documentation site has."""
    return [path for place in _PLACES for path in sorted(ROOT.glob(place))]


def code_blocks() -> list[CodeBlock]:
    parser = MarkdownIt("commonmark")
    parser.core.ruler.enableOnly(["normalize", "block"])  # every worker of pytest reads all pages when it collects
    found = []
    for page, section, token in _tokens(parser):
        if token.type in ("fence", "code_block"):
            kind = token.info.strip() if token.type == "fence" else _INDENTED
            found.append(CodeBlock(page, section, kind, token.content, _line(token)))
    return found


def code_spans() -> list[CodeSpan]:
    return [
        CodeSpan(page, _line(token), child.content)
        for page, _, token in _tokens(MarkdownIt("commonmark").enable("table"))
        for child in token.children or ()
        if child.type == "code_inline"
    ]


def _line(token: Token) -> int:
    return token.map[0] + 1 if token.map else 0


def _tokens(parser: MarkdownIt) -> Iterator[tuple[str, str, Token]]:
    """Every token with its page and the heading above it."""
    for path in pages():
        section, page = "", path.relative_to(ROOT).as_posix()
        tokens = parser.parse(path.read_text(encoding="utf-8"))
        for number, token in enumerate(tokens):
            if token.type == "heading_open":
                section = tokens[number + 1].content
            yield page, section, token
