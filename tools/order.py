"""Shell: counts what makes the code hard to hold in the head, and compares each count with its limit.

`python -m tools.order` prints one row for each count, and fails if a count is above its limit. `--list NAME` prints all
places of one count. A limit is the target where the target is reached; elsewhere the limit is the number of the day on
which the limit was last set, so that the count may fall but never rise.
"""

from __future__ import annotations

import argparse
import ast
import configparser
import io
import os
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent

BASE = "3dbbe538b7f7"
"""The commit after which the titles of commits are judged. The titles before it cannot be mended."""

WIRE_MESSAGES = "src/barnabas/protocol/wire/messages"
"""The folder of Kafka's messages, whose nested classes have the names that Kafka's specification gives them."""

NAMED_BY_OTHERS = frozenset({"DefaultSource"})
"""Names of classes that another program demands: Spark finds a data source by the class `DefaultSource`."""

BAGS = frozenset({"Services", "Parts"})
"""Names of the classes through which a package's objects are handed to everything, instead of to their users only."""

NO_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
"""The kinds of tokens that do not make a line a line of code."""


@dataclass(frozen=True)
class Place:
    """One place that a count counts: a file with a line, a folder, or a commit."""

    where: str
    what: str
    weight: int = 1
    """How bad the place is, in the unit of its count (lines, parameters, files). The worst places are printed first."""


class Module:
    """One Python file, parsed once for all counts."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        """The file's path from the root of the project, with slashes."""
        self.source = source
        self.tree = ast.parse(source)
        self.nodes: list[ast.AST] = list(ast.walk(self.tree))
        """All nodes of the syntax tree, so that each count need not walk the tree again."""

    @property
    def lines(self) -> int:
        """The number of lines of the file, blank lines and comments among them."""
        return self.source.count("\n")

    @property
    def name(self) -> str:
        """The dotted name of the module, as an import statement gives it."""
        parts = Path(self.path).with_suffix("").parts
        parts = parts[1:] if parts[0] == "src" else parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def comments(self) -> dict[int, str]:
        """The comment of each line that has one."""
        if "#" not in self.source:
            return {}
        tokens = tokenize.generate_tokens(io.StringIO(self.source).readline)
        return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}

    def code_lines(self) -> int:
        """The number of lines that have code: not blank, not only a comment, not part of a docstring.

        A string that stands alone as a statement is a docstring, of a module, class, function or attribute. A string
        of several lines that is a value counts in full.
        """
        docstrings = {
            line
            for node in self.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        code: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            if token.type not in NO_CODE:
                code.update(range(token.start[0], token.end[0] + 1))
        return len(code - docstrings)

    def place(self, node: ast.AST, what: str, weight: int = 1) -> Place:
        """The place of a node of this file."""
        return Place(f"{self.path}:{getattr(node, 'lineno', 1)}", what, weight)


@dataclass(frozen=True)
class Tree:
    """The files of the project that the counts read."""

    source: Sequence[Module]
    """The modules of the product, in `src`."""

    tests: Sequence[Module]
    """The modules in `tests`."""

    contracts: configparser.ConfigParser
    """The contracts of import-linter."""

    commits: Sequence[tuple[str, str]]
    """Short id and title of each commit after `BASE`. Empty outside a clone that has `BASE`."""


def read_tree(root: Path = ROOT) -> Tree:
    """Read and parse the project's files."""
    contracts = configparser.ConfigParser()
    contracts.read(root / ".importlinter", encoding="utf-8")
    return Tree(_modules(root, "src"), _modules(root, "tests"), contracts, _commits(root))


def _modules(root: Path, folder: str) -> list[Module]:
    files = sorted((root / folder).rglob("*.py"))
    return [Module(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")) for file in files]


def _commits(root: Path) -> list[tuple[str, str]]:
    """The commits after `BASE`, or none if there is no git or no such commit, as in a shallow clone or an archive.

    In CI there are none, too: the commits on top may be those of a tool that has merged the change.
    """
    if os.environ.get("CI"):
        return []
    command = ["git", "log", "--no-merges", "--format=%h%x09%s", f"{BASE}..HEAD"]
    try:
        printed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [(line.split("\t", 1)[0], line.split("\t", 1)[1]) for line in printed.splitlines()]


def class_names(tree: Tree) -> Iterator[Place]:
    """Public class names that occur more than once in `src`, apart from those of Kafka's messages."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in tree.source:
        if not module.path.startswith(WIRE_MESSAGES):
            for node in module.nodes:
                if isinstance(node, ast.ClassDef) and node.name not in NAMED_BY_OTHERS and node.name[0] != "_":
                    places[node.name].append(f"{module.path}:{node.lineno}")
    for name, found in places.items():
        if len(found) > 1:
            yield Place(found[0], f"{name}, also {' '.join(found[1:])}", len(found))


def long_functions(tree: Tree, limit: int = 70) -> Iterator[Place]:
    """Functions of more than 70 lines, from `def` to the last line, docstring included."""
    for module in tree.source:
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > limit:
                    yield module.place(node, f"{node.name}: {lines} lines", lines)


def many_parameters(tree: Tree, limit: int = 7) -> Iterator[Place]:
    """Functions with more than 7 parameters, `self` included."""
    for module in tree.source:
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
                if count > limit:
                    yield module.place(node, f"{node.name}: {count} parameters", count)


def tiny_modules(tree: Tree, limit: int = 20) -> Iterator[Place]:
    """Modules of at most 20 lines that are not the `__init__` of a package."""
    for module in tree.source:
        if module.lines <= limit and not module.path.endswith("/__init__.py"):
            yield Place(f"{module.path}:1", f"{module.lines} lines", limit - module.lines)


def broad_excepts(tree: Tree) -> Iterator[Place]:
    """Handlers of `Exception`, `BaseException` or everything, without a reason in a comment on the line.

    A handler that always raises again needs no reason: it hides no error.
    """
    for module in tree.source:
        for node in module.nodes:
            if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _raises_again(node):
                comment = module.comments.get(node.lineno, "")
                if not _words(re.sub(r"noqa: *[A-Z]+\d+", "", comment)):
                    yield module.place(node, "except without a reason")


def _is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(_is_broad(element) for element in caught.elts)
    return caught is None or (isinstance(caught, ast.Name) and caught.id in ("Exception", "BaseException"))


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def type_ignores(tree: Tree) -> Iterator[Place]:
    """Comments `type: ignore` without a reason after them."""
    for module in tree.source:
        for line, comment in module.comments.items():
            match = re.search(r"type: *ignore(\[[a-z, -]+\])?(.*)", comment)
            if match and not _words(match[2]):
                yield Place(f"{module.path}:{line}", comment)


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z]{2,}", text)


def large_folders(tree: Tree, limit: int = 25) -> Iterator[Place]:
    """Folders with more than 25 modules, apart from the folder that has one file for each of Kafka's messages."""
    folders = Counter(module.path.rpartition("/")[0] for module in tree.source if "__init__" not in module.path)
    for folder, files in folders.items():
        if files > limit and folder != WIRE_MESSAGES:
            yield Place(folder, f"{files} modules", files)


def bag_importers(tree: Tree) -> Iterator[Place]:
    """Modules that import a bag: a class that hands everything to everyone (`BAGS`)."""
    for module in tree.source:
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom):
                for bag in sorted(BAGS.intersection(alias.name for alias in node.names)):
                    yield module.place(node, f"imports {bag} from {node.module}")


def upward_imports(tree: Tree) -> Iterator[Place]:
    """Imports from a lower floor to a higher one, or between neighbours, by the contracts of import-linter.

    An exception that a contract allows (`ignore_imports`) is counted, too: import-linter does not report it.
    """
    for section in tree.contracts.sections():
        contract = tree.contracts[section]
        for exception in contract.get("ignore_imports", "").split("\n"):
            if exception.strip():
                yield Place(".importlinter", f"{section} allows {exception.strip()}")
        if contract.get("type") == "layers":
            yield from _layer_breaks(tree, contract)


def _layer_breaks(tree: Tree, contract: configparser.SectionProxy) -> Iterator[Place]:
    rows = [row.split("|") for row in contract["layers"].split("\n") if row.strip()]
    for container in contract.get("containers", "").split() or [""]:
        prefix = f"{container}." if container else ""
        floors = {prefix + name.strip(): floor for floor, names in enumerate(rows) for name in names}
        for module in tree.source:
            importer = _package_in(floors, module.name)
            if importer is None:
                continue
            for node in module.nodes:
                for imported in _imported(node):
                    package = _package_in(floors, imported)
                    if package is not None and package != importer and floors[package] <= floors[importer]:
                        yield module.place(node, f"{importer} imports {imported}")


def _package_in(floors: dict[str, int], name: str) -> str | None:
    return next((package for package in floors if name == package or name.startswith(f"{package}.")), None)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def commit_titles(tree: Tree) -> Iterator[Place]:
    """Titles of commits that are longer than 72 characters, lack the package before a colon, or occur twice."""
    titles = Counter(title for _, title in tree.commits)
    for commit, title in tree.commits:
        if len(title) > 72:
            yield Place(commit, f"{len(title)} characters: {title}", len(title))
        if not re.fullmatch(r"[A-Za-z0-9_./, -]+: \S.*", title):
            yield Place(commit, f"no package and colon: {title}")
        if titles[title] > 1:
            yield Place(commit, f"{titles[title]} commits have the title: {title}")


def sleeps(tree: Tree) -> Iterator[Place]:
    """Calls of `sleep` in tests, other than `sleep(0)`, without a reason in a comment on the line (`# sleep: why`). In
    a module whose docstring says that sleeps take virtual time, they need none."""
    for module in tree.tests:
        if "Sleeps take virtual time" in (ast.get_docstring(module.tree) or ""):
            continue
        for node in module.nodes:
            if isinstance(node, ast.Call) and _is_sleep(node):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                if not any(_words(module.comments.get(line, "").replace("noqa", "")) for line in lines):
                    yield module.place(node, "sleep without a reason")


def _is_sleep(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    zero = bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return name == "sleep" and not zero


@dataclass(frozen=True)
class Rule:
    """One row of the table: what is counted, and how much of it there may be."""

    name: str
    """The name of the count, for `--list`."""

    count: Callable[[Tree], Iterable[Place]]
    """Finds the places. The first line of the function's docstring says what is counted."""

    limit: int
    """The check fails if there are more places than this."""

    target: int
    """The limit that is aimed at. Where the limit is higher, the limit falls with the count."""


RULES = (
    Rule("class-names", class_names, limit=12, target=12),
    Rule("long-functions", long_functions, limit=17, target=3),
    Rule("parameters", many_parameters, limit=109, target=40),
    Rule("tiny-modules", tiny_modules, limit=43, target=20),
    Rule("broad-excepts", broad_excepts, limit=0, target=0),
    Rule("type-ignores", type_ignores, limit=1, target=0),
    Rule("large-folders", large_folders, limit=3, target=0),
    Rule("bag-importers", bag_importers, limit=7, target=0),
    Rule("upward-imports", upward_imports, limit=1, target=1),
    Rule("commit-titles", commit_titles, limit=0, target=0),
    Rule("sleeps", sleeps, limit=0, target=0),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or all places of one count; the exit code is 1 if a count is above its limit."""
    parser = argparse.ArgumentParser(prog="python -m tools.order", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", choices=[rule.name for rule in RULES], help="print all places of this count")
    listed = parser.parse_args(arguments).list
    tree = read_tree()
    broken = []
    for rule in RULES:
        if listed in (None, rule.name):
            places = sorted(rule.count(tree), key=lambda place: (-place.weight, place.where))
            _print_rule(rule, places, everything=listed is not None)
            broken += [rule.name] if len(places) > rule.limit else []
    if listed is None:
        print(
            f"{sum(module.code_lines() for module in tree.source):,} lines of code in src, "
            f"of {sum(module.lines for module in tree.source):,} lines in {len(tree.source):,} modules"
        )
    if broken:
        print(
            f"above the limit: {', '.join(broken)}; `python -m tools.order --list {broken[0]}` lists all places",
            file=sys.stderr,
        )
    return bool(broken)


def _print_rule(rule: Rule, places: Sequence[Place], *, everything: bool) -> None:
    target = f"target {rule.target}" if rule.target != rule.limit else ""
    verdict = "ABOVE" if len(places) > rule.limit else "lower the limit" if len(places) < rule.limit else ""
    summary = (rule.count.__doc__ or "").partition("\n")[0]
    print(f"{rule.name:<15} {len(places):>4}  limit {rule.limit:>3}  {target:<10}  {verdict:<15}  {summary}")
    for place in places if everything else places[:3] if len(places) > rule.target else ():
        print(f"    {place.where}  {place.what}")


if __name__ == "__main__":
    sys.exit(main())
