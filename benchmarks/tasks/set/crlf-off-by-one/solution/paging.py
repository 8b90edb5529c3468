"""Lists in pages; pages are counted from 1."""


def page_count(items, size):
    """How many pages the items fill; none when there are no items."""
    if size < 1:
        raise ValueError(f"a page needs room for an item, not {size}")
    return (len(items) + size - 1) // size


def page(items, number, size):
    """The items of a page. Raises IndexError for a page that does not exist."""
    if not 1 <= number <= page_count(items, size):
        raise IndexError(f"there is no page {number}")
    start = (number - 1) * size
    return items[start : start + size]


def neighbours(items, number, size):
    """The numbers of the pages before and after; None where there is none."""
    before = number - 1 if number > 1 else None
    after = number + 1 if number < page_count(items, size) else None
    return before, after
