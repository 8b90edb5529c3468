"""Questions about the stock."""


def total_value(items):
    """What everything on the shelves is worth, in cents."""
    return sum(item.count * item.price_cents for item in items)


def find(items, name):
    """The item of that name, whatever its case; None when there is none."""
    for item in items:
        if item.name.lower() == name.lower():
            return item
    return None


def reorder(items):
    """What has to be ordered: a dict from an item's name to how many are missing to its minimum.

    Items that have their minimum or more are left out.
    """
    return {item.name: item.minimum - item.count for item in items if item.count < item.minimum}
