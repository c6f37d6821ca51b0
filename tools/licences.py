"""Shell: writes THIRD_PARTY.md: every package that pyproject.toml names, what it is for, and its licence.

`python -m tools.licences` reads the metadata of the installed packages. A package that is not installed on this machine
keeps the row that the page has.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "THIRD_PARTY.md"

HEAD = """# Third-party packages

Barnabas contains no code of others. It uses these packages, which pip installs beside it; each has its own licence.
The base is what a broker and the clients need; everything else belongs to extras (`pip install '.[spark]'`), and the
last group is used by those who change Barnabas. The page is written by `python -m tools.licences` from what the
packages say of themselves.
"""

FOR_CHANGES = frozenset({"bench", "dev", "docs", "fuzz", "interop"})
"""The extras that only those who change Barnabas install."""

COMMON = {
    "Apache Software License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "BSD License": "BSD",
    "BSD 3-Clause License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Names of licences as packages write them, and their SPDX names."""


def named_packages(project: Mapping[str, object]) -> dict[str, list[str]]:
    """The packages that pyproject.toml names, each with `base` or the extras that need it."""
    needed: dict[str, list[str]] = defaultdict(list)
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    for extra, requirements in {"base": project["dependencies"], **extras}.items():
        for requirement in requirements:
            match = re.match(r"[A-Za-z0-9._-]+", requirement)
            assert match is not None, requirement
            if match[0] != "barnabas" and extra not in needed[match[0].lower()]:
                needed[match[0].lower()].append(extra)
    return {name: extras for name, extras in sorted(needed.items()) if extras}


def licence_of(package: PackageMetadata) -> str:
    """The licence as the package's metadata give it: an SPDX expression, else a classifier, else the first line."""
    if expression := (package.get_all("License-Expression") or [""])[0]:
        return str(expression)
    classifiers = [text for text in package.get_all("Classifier") or () if text.startswith("License :: ")]
    names = sorted({text.rpartition(" :: ")[2] for text in classifiers} - {"OSI Approved"})
    if names:
        return ", ".join(COMMON.get(name, name) for name in names)
    lines = (package.get_all("License") or [""])[0].strip().splitlines()
    first = lines[0].strip() if lines else ""
    return COMMON.get(first, first or "see its files")


def render(needed: Mapping[str, Sequence[str]], known: Mapping[str, str]) -> str:
    """The page. `known` has the licences of packages that are not installed here."""
    groups: dict[str, list[str]] = {"The base": [], "Extras": [], "For changes": []}
    for name, extras in needed.items():
        try:
            licence = licence_of(metadata(name))
        except PackageNotFoundError:
            licence = known.get(name, "")
        if not licence:
            raise SystemExit(f"{name} is not installed, and {PAGE.name} does not have it: pip install {name}")
        used = [extra for extra in extras if extra not in FOR_CHANGES]
        group = "The base" if "base" in extras else "Extras" if used else "For changes"
        row = (
            f"| {name} | {licence} |"
            if group == "The base"
            else f"| {name} | {licence} | {', '.join(used or extras)} |"
        )
        groups[group].append(row)
    page = [HEAD]
    for title, rows in groups.items():
        head = (
            "| Package | Licence |\n|---|---|"
            if title == "The base"
            else "| Package | Licence | Extra |\n|---|---|---|"
        )
        page.append("\n".join([f"## {title}\n", head, *rows, ""]))
    return "\n".join(page)


def known_licences(page: str) -> dict[str, str]:
    """The licences that a page of an earlier run has."""
    return dict(re.findall(r"^\| ([a-z0-9._-]+) \| ([^|]+?) \|", page, re.MULTILINE))


def main() -> None:
    """Write the page."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = known_licences(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    PAGE.write_text(render(named_packages(project), known), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")


if __name__ == "__main__":
    main()
