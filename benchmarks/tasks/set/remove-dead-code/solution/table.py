"""Rows of texts as tables."""

import html


def widths(rows):
    """The width of each column."""
    return [max(len(cell) for cell in column) for column in zip(*rows)]


def _padded(row, sizes):
    return [cell.ljust(size) for cell, size in zip(row, sizes)]


def render_markdown(rows):
    """The rows as a Markdown table; the first one is its head."""
    sizes = widths(rows)
    lines = [f"| {' | '.join(_padded(row, sizes))} |" for row in rows]
    lines.insert(1, f"|{'|'.join('-' * (size + 2) for size in sizes)}|")
    return "\n".join(lines)


def render_html(rows):
    """The rows as an HTML table."""
    cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"
