"""Rates as people write them."""


def parse_percent(text):
    """The number before an optional percent sign: "12.5 %" is 12.5."""
    number = float(text.strip().removesuffix("%"))
    if not 0 <= number <= 100:
        raise ValueError(f"percent out of range: {number}")
    return number


def format_percent(number):
    """The shortest way to write a rate: 12.5 %, 7 %."""
    return f"{number:g} %"
