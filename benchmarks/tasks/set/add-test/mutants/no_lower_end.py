"""Ranges of numbers; both ends belong to a range."""


def overlap(first, second):
    """Whether two ranges, pairs of a low and a high end, have a number in common."""
    return first[0] <= second[1] and second[0] <= first[1]


def clamp(value, low, high):
    """The number of the range from low to high that is nearest to the value."""
    return min(value, high)
