"""Days of the week."""

from dates import day_of_year

NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def weekday(year, month, day):
    """The name of a day, counted from the Monday of the first of January 2001."""
    if year != 2001:
        raise ValueError("only the year 2001 is known here")
    return NAMES[(day_of_year(year, month, day) - 1) % 7]
