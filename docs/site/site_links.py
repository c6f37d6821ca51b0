"""Shell: an extension of Sphinx for what Markdown on a Git host can do and Sphinx cannot: links to folders, and a
`<picture>` with an image for each colour scheme. It also breaks long names in tables, and writes the
`index.html` at the root of the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

_DOTTED = re.compile(r'(?<=<span class="pre">)[\w-]+(?:\.[\w-]+)+(?=</span>)')
_PICTURE = re.compile(r'<picture>.*?srcset="([^"]+)".*?<img src="([^"]+)" alt="([^"]*)"[^>]*></picture>', re.DOTALL)


class FolderLinks(SphinxTransform):
    """A link to a folder becomes a link to the folder's README, or plain text if the folder has none.

    A link to a folder that does not exist stays as it is, and Sphinx warns of it.
    """

    default_priority = 100

    def apply(self, **_: Any) -> None:
        here = posixpath.dirname(self.env.docname)
        for link in list(self.document.findall(addnodes.pending_xref)):
            if link.get("reftype") != "myst" or link.get("refdomain") is not None:
                continue
            target = posixpath.normpath(posixpath.join(here, link["reftarget"]))
            if not (Path(self.env.srcdir) / target).is_dir():
                continue
            readme = f"{target}/README"
            if readme in self.env.found_docs:
                link["refdomain"], link["reftarget"], link["reftargetid"] = "doc", readme, None
            else:
                link.replace_self(nodes.inline("", "", *link.children))


class Pictures(SphinxTransform):
    """`<picture>` becomes two images, of which the theme shows the one for the reader's colour scheme."""

    default_priority = 100

    def apply(self, **_: Any) -> None:
        for paragraph in list(self.document.findall(nodes.paragraph)):
            html = "".join(child.astext() for child in paragraph.children if isinstance(child, nodes.raw))
            found = _PICTURE.fullmatch(html)
            if found is None:
                continue
            dark, light, alt = found.groups()
            paragraph.replace_self(
                [
                    nodes.image(uri=light, alt=alt, classes=["only-light"]),
                    nodes.image(uri=dark, alt=alt, classes=["only-dark"]),
                ]
            )


def break_names_at_dots(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
    """Let a browser break the names of configs in narrow columns, without a character that a copy would contain."""
    if "body" in context:
        context["body"] = _DOTTED.sub(lambda found: found[0].replace(".", ".<wbr>"), context["body"])


def write_index(app: Sphinx, error: Exception | None) -> None:
    """Write a page at the site's root that leads to the landing page."""
    if error is None and app.builder.format == "html":
        target = app.builder.get_target_uri(app.config.root_doc)
        (Path(app.outdir) / "index.html").write_text(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{app.config.project}</title>'
            f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">{app.config.project}</a></html>\n'
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(FolderLinks)
    app.add_transform(Pictures)
    app.connect("html-page-context", break_names_at_dots)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
