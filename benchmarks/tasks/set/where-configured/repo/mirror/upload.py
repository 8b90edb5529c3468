"""Sending files."""

from mirror.settings import upload_settings


def send(path, put):
    """Hand the file to `put` until it takes it; False when it never did."""
    settings = upload_settings()
    return any(put(path, timeout=settings.timeout) for _ in range(settings.attempts))
