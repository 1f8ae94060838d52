"""The part of Markdown that our docs use, as HTML: headings, paragraphs, lists, tables, code, emphasis, links."""

from __future__ import annotations

import re
from html import escape

TABLE_RULE = re.compile(r"\|[\s:|-]+\|")


def inline(text: str) -> str:
    """Return one line's HTML; links to other files become plain text, since a page stands alone."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(f"<code>{escape(part[1:-1])}</code>" if part.startswith("`") else _spans(part) for part in parts)


def _spans(text: str) -> str:
    out = escape(text, quote=False)
    out = re.sub(r"\[([^\]]+)\]\((https?://[^)\s]+)\)", r'<a href="\2">\1</a>', out)
    out = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", out)
    out = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", out)
    return re.sub(r"\*([^*]+)\*", r"<i>\1</i>", out)


def _table(lines: list[str]) -> str:
    rows = [[inline(cell.strip()) for cell in line.strip().strip("|").split("|")] for line in lines]
    head, body = rows[0], rows[2:]
    cells = "".join(f"<th>{cell}</th>" for cell in head)
    rest = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in body)
    return f'<div class="wide"><table><thead><tr>{cells}</tr></thead><tbody>{rest}</tbody></table></div>'


def _list(lines: list[str]) -> str:
    items = re.split(r"^(?:[*-]|\d+\.)\s+", "\n".join(lines), flags=re.MULTILINE)
    kind = "ol" if lines[0][0].isdigit() else "ul"
    inner = "".join(f"<li>{inline(' '.join(item.split()))}</li>" for item in items if item.strip())
    return f"<{kind}>{inner}</{kind}>"


def _block(lines: list[str], below: int) -> str:
    first = lines[0]
    if first.startswith("#"):
        level = len(first) - len(first.lstrip("#")) + below
        rest = lines[1:]
        heading = f"<h{level}>{inline(first.lstrip('#').strip())}</h{level}>"
        return heading + (_block(rest, below) if rest else "")
    if len(lines) > 1 and TABLE_RULE.fullmatch(lines[1].strip()):
        return _table(lines)
    if re.match(r"(?:[*-]|\d+\.)\s", first):
        return _list(lines)
    return f"<p>{inline(' '.join(line.strip() for line in lines))}</p>"


def html_of(markdown: str, below: int = 0) -> str:
    """Return *markdown* as HTML, its headings lowered by *below* levels."""
    out: list[str] = []
    for number, part in enumerate(re.split(r"^```.*$", markdown, flags=re.MULTILINE)):
        if number % 2:
            out.append(f"<pre>{escape(part.strip(chr(10)))}</pre>")
            continue
        blocks = (block.splitlines() for block in re.split(r"\n\s*\n", part.strip()))
        out += [_block(block, below) for block in blocks if block]
    return "\n".join(out)
