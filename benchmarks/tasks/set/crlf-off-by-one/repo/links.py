"""The links under a page."""

from paging import neighbours


def links(items, number, size):
    """The links to the pages before and after."""
    before, after = neighbours(items, number, size)
    found = []
    if before is not None:
        found.append(f"<a href='?page={before}'>back</a>")
    if after is not None:
        found.append(f"<a href='?page={after}'>on</a>")
    return found
