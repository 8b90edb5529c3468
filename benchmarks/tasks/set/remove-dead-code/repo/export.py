"""A table in the format a user asks for."""

from table import render_html, render_markdown

FORMATS = {"markdown": render_markdown, "html": render_html}


def export(rows, name):
    """Raises ValueError for a format that is not known."""
    if name not in FORMATS:
        raise ValueError(f"no such format: {name}; there are {', '.join(FORMATS)}")
    return FORMATS[name](rows)
