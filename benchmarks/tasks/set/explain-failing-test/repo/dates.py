"""Days of the Gregorian calendar."""

MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
FEBRUARY = 2


def is_leap_year(year):
    """Whether February has 29 days."""
    return year % 4 == 0


def days_in_month(year, month):
    """How many days a month has; months are counted from 1."""
    if month == FEBRUARY and is_leap_year(year):
        return 29
    return MONTH_DAYS[month - 1]


def day_of_year(year, month, day):
    """1 for the first of January."""
    return sum(days_in_month(year, before) for before in range(1, month)) + day
