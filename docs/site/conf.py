"""Table: the settings of Sphinx for the documentation site (`make docs`). The pages are Markdown, read by MyST."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

from barnabas.core.version import VERSION  # noqa: E402  # the line above makes it importable without an installation

project = "Barnabas"
author = "The Barnabas authors"
copyright = "The Barnabas authors, Apache License 2.0"
version = release = VERSION
language = "en"

# The source directory is the repository's root, so that a link between two Markdown files is the same on a Git host
# and in the site.
root_doc = "docs/index"
source_suffix = {".md": "markdown"}
include_patterns = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "THIRD_PARTY.md",
    "bench/README.md",
    "deploy/*.md",
    "deploy/**/README.md",
    "docs/*.md",
    "docs/**/*.md",
    "examples/**/README.md",
    "src/barnabas/*/README.md",
    "src/barnabas/**/README.md",
]
exclude_patterns = [".*", "out", "tests", "build", "dist", "target", "data", "**/node_modules", "**/__pycache__"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "site_links", "site_docstrings", "site_navigation"]
myst_heading_anchors = 6
suppress_warnings = [
    "myst.header",  # a generated page may begin below a title that a person wrote
    "misc.highlighting_failure",  # JSON with an ellipsis is shown without colours
]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 80
add_module_names = False

html_theme = "furo"
html_title = "Barnabas"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#a3420f", "color-brand-content": "#a3420f"},
    "dark_css_variables": {"color-brand-primary": "#f0a070", "color-brand-content": "#f0a070"},
}
pygments_style = "default"
