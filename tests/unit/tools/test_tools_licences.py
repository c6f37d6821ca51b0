"""THIRD_PARTY.md has every package that pyproject.toml names."""

import tomllib

from tools import licences


def test_every_package_that_the_project_names_has_its_licence_on_the_page() -> None:
    project = tomllib.loads((licences.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = licences.PAGE.read_text(encoding="utf-8")
    assert set(licences.known_licences(page)) == set(licences.named_packages(project)), "run: python -m tools.licences"


def test_the_page_keeps_the_licences_of_packages_that_are_not_installed() -> None:
    page = licences.render({"no-such-package": ["base"]}, {"no-such-package": "MIT"})
    assert "| no-such-package | MIT |" in page
