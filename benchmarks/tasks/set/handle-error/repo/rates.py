"""Rates as people write them."""


def parse_percent(text):
    """The number before an optional percent sign: "12.5 %" is 12.5."""
    number = float(text.strip().removesuffix("%"))
    return number


def format_percent(number):
    """The shortest way to write a rate: 12.5 %, 7 %."""
    return f"{number:g} %"
