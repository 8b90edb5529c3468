"""Prices in cents."""

from rates import parse_percent


def discounted(cents, rate):
    """The price less a discount that is written like "10 %", rounded to a cent."""
    return round(cents * (100 - parse_percent(rate)) / 100)
