"""Member names."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def slug(reference: str) -> str:
    """A member name made of a model reference: its last part in lower case, `.gguf` taken off.

    `/models/Qwen.Q4_K_M.gguf` → `qwen.q4_k_m`; `hf:ORG/Repo:Q4` → `repo-q4`; `openai:http://host/v1#name` → `name`.
    """
    tail = urlsplit(reference).fragment or reference.rstrip("/").rsplit("/", 1)[-1]
    plain = re.sub(r"[^a-z0-9._-]+", "-", tail.lower().removesuffix(".gguf")).strip("-._")
    return plain[:128] or "member"


def split_load(text: str) -> tuple[str, str | None]:
    """`REF[=NAME]` → reference and name. A `=` that no valid name follows belongs to the reference (a file's path)."""
    reference, mark, name = text.rpartition("=")
    if mark and reference and NAME.fullmatch(name) and not name.endswith(".gguf"):
        return reference, name
    return text, None
