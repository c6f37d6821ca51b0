"""The documentation site: it builds without a warning, loads nothing from elsewhere, and is read in a real Chromium."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import barnabas
from tests.golden.pages.code_blocks import ROOT
from tests.progress import STANDSTILL_S

pytestmark = pytest.mark.system

WIDE: Final = {"width": 1280, "height": 900}
PHONE: Final = {"width": 390, "height": 844}
PAGES: Final = (
    "docs/index.html", "README.html", "docs/tutorial/consume.html", "docs/recipes/django.html", "docs/FAQ.html",
    "docs/COMPARISON.html", "docs/OPERATIONS.html", "docs/CONSOLE.html", "docs/METRICS.html", "docs/PERFORMANCE.html",
    "docs/reference/broker.html", "docs/reference/cli.html", "docs/reference/python.html",
)  # fmt: skip
_LOADED: Final = re.compile(r'(?:<script[^>]*src|<link[^>]*rel="stylesheet"[^>]*href|<img[^>]*src)="(https?:[^"]*)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. Every warning of the build, such as a broken link, is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-j", "2"]
    places = ["-c", str(ROOT / "docs" / "site"), "-d", str(folder / "cache"), str(ROOT), str(folder / "html")]
    done = subprocess.run([*command, *places], capture_output=True, text=True, timeout=STANDSTILL_S * 5, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = which("chromium")
    assert path is not None, "Chromium is missing: run tests/system/console/install.sh"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Reader:
    """A page that is opened from the files, without a server. Collects requests to other places and complaints."""

    def __init__(self, chromium: Browser, site: Path, **options: Any) -> None:
        self.page: Page = chromium.new_context(**{"viewport": WIDE, **options}).new_page()
        self.complaints: list[str] = []
        self._site = site
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._on_request(request.url))
        self.page.on("requestfailed", lambda request: self.complaints.append(f"missing: {request.url}"))

    def _on_request(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            self.complaints.append(f"loaded from elsewhere: {url}")

    def open(self, path: str) -> None:
        self.page.goto((self._site / path).as_uri())


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = {found for page in site.rglob("*.html") for found in _LOADED.findall(page.read_text(encoding="utf-8"))}
    assert loaded == set()


def test_the_index_leads_to_the_landing_page(chromium: Browser, site: Path) -> None:
    reader = Reader(chromium, site)
    reader.open("index.html")
    expect(reader.page.locator("h1")).to_contain_text("Barnabas")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_no_page_overflows_or_complains(chromium: Browser, site: Path, size: dict[str, int], scheme: str) -> None:
    reader = Reader(chromium, site, viewport=size, color_scheme=scheme)
    dark = []
    for path in PAGES:
        reader.open(path)
        assert reader.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
        assert reader.page.locator("h1").count() == 1, path
        assert reader.page.evaluate("Array.from(document.images).every(i => i.complete && i.naturalWidth)"), path
        background = reader.page.evaluate("getComputedStyle(document.body).backgroundColor")
        dark.append(sum(int(number) for number in re.findall(r"\d+", background)[:3]) < 3 * 128)
    assert set(dark) == {scheme == "dark"}
    assert reader.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_picture_fits_the_colour_scheme(chromium: Browser, site: Path, scheme: str) -> None:
    reader = Reader(chromium, site, color_scheme=scheme)
    reader.open("docs/index.html")
    shown = [image for image in reader.page.locator("article img").all() if image.is_visible()]
    assert [f"-{scheme}." in (image.get_attribute("src") or "") for image in shown] == [True]


def test_a_search_without_a_server_finds_a_config(chromium: Browser, site: Path) -> None:
    reader = Reader(chromium, site)
    reader.open("docs/index.html")
    reader.page.get_by_placeholder("Search").fill("lost quorum")
    reader.page.get_by_placeholder("Search").press("Enter")
    expect(reader.page.locator("#search-results")).to_contain_text("Operations")


def test_the_api_reference_has_every_public_name(site: Path) -> None:
    text = (site / "docs" / "reference" / "python.html").read_text(encoding="utf-8")
    named = set(re.findall(r'id="barnabas\.(\w+)"', text))
    assert set(barnabas.__all__) - named == {"__version__"}
