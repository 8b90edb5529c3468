"""Finding and counting words."""

import re
from collections import Counter

WORD = re.compile(r"[A-Za-z']+")


def count_words(text, min_length=1):
    """How often each word stands in the text."""
    return Counter(word for word in WORD.findall(text) if len(word) >= min_length)
