"""Why a trial, or a part of one, cannot be made."""

from __future__ import annotations


class TrialFailed(Exception):
    """The message is a sentence for whoever runs the trial."""
