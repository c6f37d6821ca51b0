"""Every code block of the documentation runs in a test, or is checked by its kind, or is listed with a reason."""

from __future__ import annotations

import ast
import json
import re
from fnmatch import fnmatch

import pytest
import yaml

from barnabas.client.config import CLUSTER_CONFIGS, CONSUMER_CONFIGS, PRODUCER_CONFIGS
from barnabas.core.properties import parse_properties
from barnabas.protocol.transport.http.settings import SETTINGS as HTTP_SETTINGS
from barnabas.registry.registry_file import SETTINGS as REGISTRY_FILE
from barnabas.server.metadata.configs.tables import BROKER_CONFIGS
from barnabas.server.node.config import AUTHORIZER_CONFIGS
from barnabas.spark.mirror.config.parsing import parse_mirror_config
from tests.golden.pages.code_block_table import RUN, SHOWN, Run, Shown
from tests.golden.pages.code_blocks import ROOT, CodeBlock, code_blocks, code_spans, pages
from tests.golden.pages.command_lines import problems_of_block, problems_of_line

COMMANDS = ("barnabas ", "kafka-", "make ")
PLACEHOLDERS = re.compile(r"\bNOUN\b|\.\.\.")
SETTINGS = re.compile(r"(?:[a-z][\w-]*(?:\.[\w-]+)+=.*\n?|#.*\n|\n)+")
"""Lines that are settings, in a block without a language."""
KNOWN = (
    BROKER_CONFIGS, CLUSTER_CONFIGS, PRODUCER_CONFIGS, CONSUMER_CONFIGS, AUTHORIZER_CONFIGS, HTTP_SETTINGS,
    REGISTRY_FILE,
)  # fmt: skip
PREFIX = re.compile(
    r"(listener\.name\.\w+\.((plain|scram-sha-\d+|oauthbearer|gssapi)\.)?"
    r"|barnabas\.metrics\.(?=ssl|authentication)|kafkastore\.)"
)
"""What stands before the names of configs: a listener with or without a mechanism, the page of metrics, a registry."""


def runs(row: Run, block: CodeBlock) -> bool:
    in_section = not row.sections or block.section in row.sections
    return fnmatch(block.page, row.pages) and block.kind in row.kinds and in_section


def shows(row: Shown, block: CodeBlock) -> bool:
    return fnmatch(block.page, row.page) and block.first_line.startswith(row.start)


def problems_of(block: CodeBlock) -> list[str] | None:
    """What is wrong with a block that no test runs; None if nothing can be said of its kind."""
    match block.kind:
        case "" | "sh" | "indented" if not SETTINGS.fullmatch(block.text):
            return problems_of_block(block.text)
        case "json":
            return _problems_of_json(block.text)
        case "yaml":
            yaml.safe_load(block.text)
            return []
        case "py":
            ast.parse(block.text)
            return []
        case "properties" if block.page.endswith("MIRRORING.md"):
            parse_mirror_config(parse_properties(block.text))
            return []
        case "properties" | "" | "sh" | "indented":
            names = parse_properties(block.text)
            return [f"there is no config {name}" for name in names if not _is_config(name)]
        case kind if kind.startswith("{"):  # a directive of the documentation site, which the site's build checks
            return []
        case _:
            return None


def _problems_of_json(text: str) -> list[str]:
    try:
        json.loads(text)
    except ValueError as error:
        return [str(error)]
    return []


def _is_config(name: str) -> bool:
    """Whether a node, a client or a registry has the config. Providers of secrets and object stores have
    configs of their own."""
    if re.match(r"config\.providers\.\w+\.(class$|param\.)|(rsm|rlmm)\.config\.", name):
        return True
    return any(one in table for one in (name, PREFIX.sub("", name, count=1)) for table in KNOWN)


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = {entry.partition("<")[2].rstrip(">") or entry for entry in navigation()}
    names = [path.relative_to(ROOT).with_suffix("").as_posix() for path in pages()]
    missing = [name for name in names if name != "docs/index" and not any(fnmatch(name, one) for one in listed)]
    assert missing == [], "add these pages to docs/site/site_navigation.py"


def navigation() -> list[str]:
    """The entries of the site's navigation, without an import of Sphinx."""
    tree = ast.parse((ROOT / "docs/site/site_navigation.py").read_text(encoding="utf-8"))
    (table,) = (node.value for node in tree.body if isinstance(node, ast.AnnAssign) and node.value is not None)
    return [node.value for node in ast.walk(table) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


BLOCKS = code_blocks()


@pytest.mark.parametrize("page", sorted({block.page for block in BLOCKS}))
def test_every_block_of_the_page_runs_or_is_checked_or_is_listed(page: str) -> None:
    wrong = []
    for block in BLOCKS:
        if block.page != page or any(runs(row, block) for row in RUN) or any(shows(row, block) for row in SHOWN):
            continue
        problems = problems_of(block)
        if problems is None:
            problems = ["no test runs it: add it to RUN or SHOWN in tests/golden/pages/code_block_table.py"]
        wrong += [f"{block}: {problem}" for problem in problems]
    assert wrong == []


@pytest.mark.parametrize("row", RUN, ids=lambda row: f"{row.test}-{row.pages}")
def test_a_block_runs_in_the_test_that_the_table_names(row: Run) -> None:
    source = (ROOT / row.test).read_text(encoding="utf-8")
    assert any(runs(row, block) for block in BLOCKS), "no block matches this row"
    folder, _, name = row.pages.rpartition("/")
    assert (folder.rpartition("/")[2] if "*" in name else name) in source
    assert "read_text" in source or all(section in source for section in row.sections)


@pytest.mark.parametrize("row", SHOWN, ids=lambda row: f"{row.page}-{row.start[:20]}")
def test_a_block_that_is_listed_exists_and_is_not_run(row: Shown) -> None:
    found = [block for block in BLOCKS if shows(row, block)]
    assert found
    assert len(found) == 1 or not row.start, "the beginning fits several blocks"
    assert not any(runs(run, block) for block in found for run in RUN)


def test_every_command_in_the_text_exists_with_its_options() -> None:
    wrong = []
    for span in code_spans():
        if span.text.startswith(COMMANDS) and not PLACEHOLDERS.search(span.text):
            wrong += [
                f"{span.page}:{span.line}: {span.text}: {problem}" for problem in problems_of_line(span.text) or ()
            ]
    assert wrong == []
