"""The block about transforms in docs/CONNECT.md runs, and prints what stands under it."""

from tests.system.pages import DOCS, run_page


def test_the_section_about_transforms() -> None:
    run_page(DOCS / "CONNECT.md", {}, section="## Transforms")
