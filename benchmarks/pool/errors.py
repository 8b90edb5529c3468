"""Why a figure is missing."""

from __future__ import annotations


class NotMeasured(Exception):
    """A measurement, or a part of one, could not be made; the message is its reason, for the table."""
