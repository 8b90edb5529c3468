"""Fetching files."""

import time
import urllib.error
import urllib.request

from mirror.settings import download_settings


def fetch(url, opener=urllib.request.urlopen):
    """The bytes at `url`. A failure is tried again after a wait; the last one is raised."""
    settings = download_settings()
    for left in range(settings.attempts - 1, -1, -1):
        try:
            with opener(url, timeout=settings.timeout) as answer:
                return answer.read()
        except urllib.error.URLError:
            if not left:
                raise
            time.sleep(settings.wait)
    raise ValueError("at least one attempt is needed")
