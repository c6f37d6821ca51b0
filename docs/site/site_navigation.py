"""Table: the order of the pages in the site's navigation. The pages themselves are plain Markdown without directives.

A page that is not in the table is an error of the build (`toc.not_included`).
"""

from __future__ import annotations

from typing import Final

from sphinx.application import Sphinx

Children = list[str]

NAVIGATION: Final[dict[str, list[tuple[str, Children]]]] = {
    "docs/index": [
        ("Begin", ["Start here <README>", "docs/tutorial/README", "docs/recipes/README", "docs/migration/README",
                   "docs/FAQ", "docs/COMPARISON"]),
        ("Run", ["docs/OPERATIONS", "docs/CLI", "docs/CONSOLE", "docs/SECURITY", "docs/QUORUM", "docs/LINKS",
                 "docs/TIERED",
                 "docs/MIGRATION", "docs/ZOOKEEPER", "docs/METRICS", "docs/PERFORMANCE", "examples/three_hosts/README",
                 "examples/cluster/README", "deploy/README", "deploy/**/README"]),
        ("Build", ["docs/CLIENTS", "docs/CLIENTS_SITUATIONS", "docs/SPARK", "docs/PIPELINES", "docs/CONNECT",
                   "docs/STREAMS", "docs/MIRRORING", "docs/REGISTRY", "docs/TESTING_YOUR_CODE",
                   "examples/flights/README", "examples/shop/README", "examples/streams/README",
                   "examples/mirroring/README"]),
        ("Look up", ["docs/reference/README", "docs/COMPATIBILITY", "docs/JSON", "docs/GLOSSARY", "CHANGELOG",
                     "SECURITY", "THIRD_PARTY"]),
        ("Inside", ["docs/ARCHITECTURE", "CONTRIBUTING", "docs/TESTING", "docs/adr/README", "bench/README"]),
    ],
    "docs/tutorial/README": [("", [
        "docs/tutorial/produce", "docs/tutorial/consume", "docs/tutorial/worker", "docs/tutorial/rebalance",
        "docs/tutorial/arrow", "docs/tutorial/queue"])],
    "docs/recipes/README": [("", ["docs/recipes/*"])],
    "docs/migration/README": [("", ["docs/migration/*"])],
    "docs/reference/README": [("", [
        "docs/reference/broker", "docs/reference/topic", "docs/reference/clients", "docs/reference/spark",
        "docs/reference/connectors", "docs/reference/types", "docs/reference/positions",
        "docs/reference/services", "docs/reference/cli", "docs/reference/python"])],
    "docs/adr/README": [("", ["docs/adr/*"])],
    "docs/ARCHITECTURE": [("", ["src/barnabas/**/README"])],
}  # fmt: skip
"""For each page that has pages below it: captions, and the names below each caption; a star matches names; a
title may stand before a name."""


def append_toctree(_app: Sphinx, docname: str, source: list[str]) -> None:
    for caption, children in NAVIGATION.get(docname, []):
        options = [":hidden:", ":glob:", *([f":caption: {caption}"] if caption else [])]
        source[0] += "\n".join(["", "```{toctree}", *options, "", *map(_entry, children), "```", ""])


def _entry(child: str) -> str:
    """A name, or a title with the name in angle brackets, as an absolute name."""
    return child.replace("<", "</") if "<" in child else f"/{child}"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", append_toctree)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
