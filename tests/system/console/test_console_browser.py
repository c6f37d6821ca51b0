"""The console in a real Chromium: pages, forms, the live view, the keyboard, a phone, both colour schemes.

With `--rewrite`, the tests write the screenshots of docs/images.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from shutil import which
from typing import Any, Final

import pytest
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.system.console.shop import Shop, shop_console

pytestmark = pytest.mark.system

IMAGES: Final = Path(__file__).parents[3] / "docs" / "images"
WIDE: Final = {"width": 1280, "height": 800}
PHONE: Final = {"width": 390, "height": 844}
PAGES: Final = (
    "/", "/topics", "/topics/flights", "/topics/flights/messages", "/topics/flights/configs", "/topics/flights/groups",
    "/topics/flights/producers", "/topics/flights/produce", "/topics/payments/why", "/groups", "/groups/delays",
    "/groups/delays/reset?to=earliest", "/groups/delays/why", "/share-groups", "/clients", "/clients?by=producer",
    "/transactions?hanging=1",
    "/transactions/billing-1", "/schemas", "/schemas/orders-value", "/brokers", "/brokers/1", "/quorum", "/moves",
    "/links", "/acls", "/users", "/quotas", "/nowhere",
)  # fmt: skip


@pytest.fixture(scope="module")
def shop() -> Iterator[tuple[str, Shop]]:
    with shop_console() as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = which("chromium")
    assert path is not None, "Chromium is missing: run tests/system/console/install.sh"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visitor:
    """A page of a context of its own; collects everything that the browser complains about."""

    def __init__(self, context: BrowserContext) -> None:
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._on_console)

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning") and "404" not in message.text:
            self.complaints.append(message.text)


def visitor(chromium: Browser, shop: tuple[str, Shop], **options: Any) -> Visitor:
    context = chromium.new_context(base_url=shop[0], **{"viewport": WIDE, **options})
    context.set_default_timeout(15_000)
    return Visitor(context)


@pytest.fixture
def visit(chromium: Browser, shop: tuple[str, Shop]) -> Iterator[Visitor]:
    found = visitor(chromium, shop)
    yield found
    assert found.complaints == []
    found.page.context.close()


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_no_page_overflows_or_breaks_the_content_policy(
    chromium: Browser, shop: tuple[str, Shop], size: dict[str, int]
) -> None:
    found = visitor(chromium, shop, viewport=size)
    for path in PAGES:
        found.page.goto(path)
        assert found.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
        assert found.page.locator("h1").count() == 1, path
        assert found.page.locator("main").count() == 1, path
        assert unlabelled(found.page) == [], path
    assert found.complaints == []
    found.page.context.close()


def unlabelled(page: Page) -> list[str]:
    """The controls without an accessible name."""
    names: list[str] = page.evaluate(
        """() => Array.from(document.querySelectorAll("input:not([type=hidden]), select, textarea, button"))
            .filter(e => !(e.labels?.length || e.textContent.trim() || e.getAttribute("aria-label")))
            .map(e => e.outerHTML)"""
    )
    return names


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_colour_schemes(chromium: Browser, shop: tuple[str, Shop], scheme: str) -> None:
    found = visitor(chromium, shop, color_scheme=scheme)
    for path in (
        "/",
        "/topics",
        "/topics/flights/messages",
        "/topics/payments/why",
        "/schemas/orders-value",
        "/brokers",
    ):
        found.page.goto(path)
        assert found.page.evaluate(CONTRAST) == [], path
    found.page.context.close()


CONTRAST: Final = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = (css) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 250) return c; }
    return rgb("white");
  };
  const bad = [];
  for (const e of document.querySelectorAll("main *, header *")) {
    const own = Array.from(e.childNodes).some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.closest("svg, option, .hidden")) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push(`${e.tagName}.${e.className} ${ratio.toFixed(2)}: ${e.textContent.trim().slice(0, 40)}`);
  }
  return bad;
}"""


def test_a_topic_is_created_in_a_dialog_and_deleted(visit: Visitor) -> None:
    page = visit.page
    page.goto("/topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("flights")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("already exists")  # the form keeps its input
    visit.complaints.clear()  # Chromium reports the refused request
    dialog.get_by_label("Name", exact=True).fill("made-by-hand")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status")).to_have_text("The topic made-by-hand was created.")
    page.get_by_role("button", name="Delete topic").click()
    page.get_by_role("dialog").get_by_label("Type made-by-hand").fill("made-by-hand")
    page.get_by_role("dialog").get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("status")).to_have_text("The topic made-by-hand was deleted.")


def test_records_are_searched_opened_and_downloaded(visit: Visitor) -> None:
    page = visit.page
    page.goto("/topics/flights/messages")
    page.get_by_label("Search", exact=True).fill('value.carrier = "UA" and value.delay > 30')
    page.get_by_role("button", name="Show").click()
    rows = page.locator("table.messages tbody tr")
    assert rows.count() > 0
    assert all('"carrier": "UA"' in text for text in rows.locator("summary").all_inner_texts())
    rows.first.locator("summary").click()
    expect(rows.first.locator("pre").first).to_contain_text('"carrier": "UA"')
    expect(rows.first.locator(".headers")).to_contain_text("tower")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download JSON lines").click()
    assert download.value.suggested_filename == "flights.jsonl"
    page.goto("/topics/customers/messages")
    text = page.locator("table.messages").inner_text()
    assert "example.com" not in text  # masked


def test_avro_records_are_decoded_by_the_registry(visit: Visitor) -> None:
    visit.page.goto("/topics/orders/messages?limit=1")
    visit.page.locator("table.messages summary").first.click()
    expect(visit.page.locator(".record")).to_contain_text("avro")
    expect(visit.page.locator(".record")).to_contain_text("schema 1")


def test_new_records_appear_in_the_live_view(visit: Visitor) -> None:
    page = visit.page
    page.goto("/topics/flights/messages?start=live")
    rows = page.locator("table.messages tbody tr")
    expect(rows.nth(9)).to_be_attached()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Continue")).to_have_attribute("aria-pressed", "true")


def test_a_record_is_produced_with_the_form(visit: Visitor) -> None:
    page = visit.page
    page.goto("/topics/payments/produce")
    page.get_by_label("Key", exact=True).fill("99")
    page.get_by_label("Value", exact=True).fill('{"order": 99}')
    page.get_by_role("button", name="Produce").click()
    expect(page.get_by_role("status").first).to_contain_text("The record is in payments-")
    expect(page.locator("table.messages")).to_contain_text('{"order": 99}')


def test_a_schema_is_compared_and_checked(visit: Visitor) -> None:
    page = visit.page
    page.goto("/schemas/orders-value")
    expect(page.locator(".diff .added", has_text="currency")).to_be_visible()
    page.locator("form.card textarea[name=schema]").fill(
        '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}'
    )
    page.get_by_role("button", name="Check compatibility").click()
    expect(page.locator(".result").first).to_contain_text("not compatible")


def test_the_overview_refreshes_itself(visit: Visitor, shop: tuple[str, Shop]) -> None:
    page = visit.page
    page.goto("/")
    page.evaluate("document.querySelector('#state').dataset.seen = 'old'")
    page.evaluate("refresh()")
    expect(page.locator("#state")).not_to_have_attribute("data-seen", "old")
    expect(page.locator("svg path.stroke").first).to_be_attached()


def test_a_page_is_used_with_the_keyboard_alone(visit: Visitor) -> None:
    page = visit.page
    page.goto("/topics")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Create topic")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Create topic")).to_be_focused()


def save(png: bytes, path: Path) -> None:
    """Write a screenshot with a palette, which makes it a third as large."""
    Image.open(BytesIO(png)).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


SHOTS: Final = {
    "overview": "/",
    "messages": "/topics/flights/messages?search=value.delay+%3E+60&limit=12",
    "group": "/groups/delays",
    "why": "/topics/payments/why",
    "schema": "/schemas/orders-value",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screenshots_are_taken_in_both_colour_schemes(
    chromium: Browser, shop: tuple[str, Shop], request: pytest.FixtureRequest, tmp_path: Path, scheme: str
) -> None:
    found = visitor(chromium, shop, color_scheme=scheme)
    target = IMAGES if request.config.getoption("--rewrite") else tmp_path
    target.mkdir(exist_ok=True)
    for name, path in SHOTS.items():
        found.page.goto(path)
        if name == "messages":
            found.page.locator("table.messages summary").nth(1).click()
        image = target / f"console-{name}-{scheme}.png"
        save(found.page.screenshot(), image)
        assert image.stat().st_size > 10_000
    found.page.context.close()
    phone = visitor(chromium, shop, color_scheme=scheme, viewport=PHONE, device_scale_factor=1)
    phone.page.goto("/")
    save(phone.page.screenshot(), target / f"console-phone-{scheme}.png")
    assert re.search("Overview", phone.page.title())
    phone.page.context.close()
