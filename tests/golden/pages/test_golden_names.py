"""What pages, docstrings and messages name in backticks exists: commands with options, files, modules, pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.golden.pages.code_blocks import ROOT, code_spans, pages
from tests.golden.pages.command_lines import problems_of_line

COMMANDS: Final = ("barnabas ", "kafka-", "connect-", "make ")
PLACEHOLDERS: Final = re.compile(r"\bNOUN\b|\.\.\.|[{}<>]|-\*")
QUOTED: Final = re.compile(r"(?<!`)`([^`]{3,300})`(?!`)")
JOINED: Final = re.compile(r'"\s*\n\s*(#\s*)?f?"|\s*\n\s*(#\s?)?')
"""The end of one line of a text in Python, and the beginning of the next: of a string in pieces, a docstring or a
comment."""
FILE: Final = re.compile(r"\.{0,2}[\w/-][\w./-]*\.(py|md|toml|sh|yaml|yml|svg|html|js|css)")
FOLDER: Final = re.compile(
    r"(src|tests|docs|bench|deploy|examples|tools|server|client|protocol|spark|cli|console|registry)/[\w/]+/?"
)
INSIDE: Final = re.compile(r"[a-z_]+(/[a-z_]+)+")
"""A module or a folder without its ending, as the pages about the inside name it."""
MODULE: Final = re.compile(r"barnabas\.(core|protocol|server|client|registry|spark|console|backup|testing|cli)(\.\w+)*")
PICTURE: Final = re.compile(r"!\[[^]]*\]\(([^)]+)\)|src(?:set)?=\"([^\"]+)\"")
OTHERS: Final = frozenset({"out/site/index.html"})
"""Files that are not part of the project: those that a command writes."""
LINK: Final = re.compile(r"\]\(([^)#]+)")
PACKAGES: Final = re.compile(r"^Inside `(\w+)`:$(.*?)(?=^Inside|^Every source)", re.MULTILINE | re.DOTALL)
NUMBERS: Final = {5: "five", 6: "six", 7: "seven", 8: "eight", 12: "twelve", 13: "thirteen", 14: "fourteen"}


@dataclass(frozen=True, slots=True)
class Named:
    """A text in backticks, and the file with the line where it stands."""

    file: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: `{self.text}`"


@cache
def in_source() -> list[Named]:
    """The texts in backticks in the Python files of `src`: of docstrings, comments, messages and help texts."""
    return [named for path in sorted((ROOT / "src").rglob("*.py")) for named in _quoted(path)]


def _quoted(path: Path) -> Iterator[Named]:
    source = path.read_text(encoding="utf-8")
    for match in QUOTED.finditer(source):
        yield Named(path, source.count("\n", 0, match.start()) + 1, JOINED.sub(" ", match[1]).strip())


@cache
def in_pages() -> list[Named]:
    return [Named(ROOT / span.page, span.line, span.text) for span in code_spans() if span.page != "CHANGELOG.md"]


@cache
def tree() -> frozenset[str]:
    """Every file and folder of the project, and every end of their paths: `server/raft/ports.py`, `raft/ports.py`."""
    tops = ("src", "tests", "docs", "bench", "deploy", "examples", "tools", "bin", ".ci")
    found = [path for top in tops for path in (ROOT / top).rglob("*") if "__pycache__" not in path.parts]
    paths = [path.relative_to(ROOT).parts for path in (*found, *ROOT.glob("*.*"), *(ROOT / top for top in tops))]
    return frozenset("/".join(parts[start:]) for parts in paths for start in range(len(parts)))


def exists(named: Named, text: str) -> bool:
    """Whether the path is in the project, seen from its root, from the file that names it, or as the end of a path."""
    known = any(f"{text.lstrip('./').rstrip('/')}{ending}" in tree() for ending in ("", ".py"))
    return known or (named.file.parent / text).exists()


def test_commands_that_docstrings_and_messages_name_exist_with_their_options() -> None:
    wrong = []
    for named in in_source():
        if named.text.startswith(COMMANDS) and not PLACEHOLDERS.search(named.text):
            wrong += [f"{named}: {problem}" for problem in problems_of_line(named.text) or ()]
    assert wrong == []


def test_files_and_folders_that_are_named_exist() -> None:
    wrong = []
    for named in (*in_source(), *in_pages()):
        text = named.text.partition("::")[0]
        is_inside = named.file.name == "ARCHITECTURE.md" or ("src" in named.file.parts and named.file.suffix == ".md")
        is_path = FILE.fullmatch(text) or FOLDER.fullmatch(text) or (is_inside and INSIDE.fullmatch(text))
        if is_path and text not in OTHERS and not exists(named, text):
            wrong.append(str(named))
    assert wrong == []


def test_modules_that_are_named_exist() -> None:
    wrong = [
        str(named)
        for named in (*in_source(), *in_pages())
        if MODULE.fullmatch(named.text) and not _is_module(named.text)
    ]
    assert wrong == []


@cache
def _is_module(name: str) -> bool:
    """Whether it is a module, or a name in one; a module is not imported, its text is searched for the name."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        base = ROOT / "src" / Path(*parts[:length])
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.exists():
                text = file.read_text(encoding="utf-8")
                return all(re.search(rf"\b{part}\b", text) for part in parts[length:])
    return False


def test_pictures_of_the_pages_exist() -> None:
    wrong = []
    for page in pages():
        for match in PICTURE.finditer(page.read_text(encoding="utf-8")):
            name = match[1] or match[2]
            if "://" not in name and not (page.parent / name).exists():
                wrong.append(f"{page.relative_to(ROOT)}: {name}")
    assert wrong == []


def test_the_first_page_lists_every_page() -> None:
    docs = ROOT / "docs"
    listed = _links(docs / "index.md")
    for page in [page for page in listed if page.name == "README.md" and page.parent.parent == docs]:
        listed |= _links(page)
    missing = [page for page in pages() if page.is_relative_to(docs) and page not in listed]
    assert missing == [docs / "index.md"]


def _links(page: Path) -> set[Path]:
    return {(page.parent / link).resolve() for link in LINK.findall(page.read_text(encoding="utf-8"))}


def test_the_map_of_the_packages_is_complete() -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    for package, table in PACKAGES.findall(text):
        folder = ROOT / "src/barnabas" / package
        there = {path.parent.name for path in folder.glob("*/__init__.py")}
        assert set(re.findall(rf"src/barnabas/{package}/(\w+)\)", table)) == there
        assert f"the {NUMBERS[len(there)]} packages below" in text


def test_figures_of_the_first_pages_are_those_that_were_measured() -> None:
    measured = (ROOT / "docs/PERFORMANCE.md").read_text(encoding="utf-8")
    start, memory = (_figures(measured, row) for row in ("start-up", "resident memory, idle"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"| {start[0]:.1f} s | {start[1]:.1f} s |" in readme
    assert f"| {round(memory[0], -1):.0f} MB | {memory[1]:.0f} MB |" in readme
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert f"starts in {start[0]:.1f} s, and needs {round(memory[0], -1):.0f} MB" in index


def _figures(page: str, row: str) -> list[float]:
    line = re.findall(rf"^\| {row}.*", page, re.MULTILINE)[0]  # the first table is the one without TLS
    return [float(number) for number in re.findall(r"\| ([\d.]+) ", line)]
