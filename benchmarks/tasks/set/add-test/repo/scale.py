"""Numbers from one range to another."""

from ranges import clamp


def scale(value, source, target):
    """Where a value of the range `source` lies in the range `target`; what lies outside is clamped."""
    share = (clamp(value, *source) - source[0]) / (source[1] - source[0])
    return target[0] + share * (target[1] - target[0])
