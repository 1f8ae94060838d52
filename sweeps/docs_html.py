"""A page of docs/ as HTML that stands alone inside another page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

HEADING_LEVELS = 6


def docs_html(markdown: str, below: int = 0) -> str:
    """Return Markdown as HTML.

    Args:
        markdown: CommonMark with tables.
        below: levels by which headings are lowered.

    Returns:
        HTML in which wide tables scroll (class ``wide``); links to other files have become plain text.
    """
    parser = MarkdownIt("commonmark").enable("table")
    parser.add_render_rule("table_open", lambda *_: '<div class="wide"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    tokens = parser.parse(markdown)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1:]) + below, HEADING_LEVELS)}"
        token.children = list(_outside_links(token.children)) if token.children else token.children
    return str(parser.renderer.render(tokens, parser.options, {}))


def _outside_links(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens without the links to other files; what such a link encloses stays."""
    outside = True
    for token in tokens:
        if token.type == "link_open":
            outside = str(token.attrs["href"]).startswith(("https://", "http://"))
        if outside or token.type not in ("link_open", "link_close"):
            yield token
