"""What a project's file may do to the keys that touch trust: it may make them tighter, never looser. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aerix_server.config.settings import TRUSTED_KEYS

# From loose to strict.
_ORDERS: dict[str, tuple[Any, ...]] = {
    "permissions.mode": ("auto", "ask", "read-only"),
    "sandbox.mode": ("off", "workspace", "read-only"),
    "sandbox.network": (True, False),
}


def tightened(key: str, value: Any, in_force: Mapping[str, Any]) -> tuple[bool, Any]:
    """Whether a project may set `key` so, and the value that then stands.

    `in_force` holds the values the project's file would change. Rules of `deny` are added to those in force; so are
    rules of `ask`, as long as everything else runs unasked: under a stricter mode a rule that asks could open what the
    mode refuses. `allow` may only lose rules.
    """
    if key not in TRUSTED_KEYS:
        return True, value
    present = in_force[key]
    if key in _ORDERS:
        order = _ORDERS[key]
        return order.index(value) >= order.index(present), value
    if key == "permissions.deny" or (key == "permissions.ask" and in_force["permissions.mode"] == "auto"):
        return True, [*present, *(rule for rule in value if rule not in present)]
    if key == "permissions.allow":
        return set(value) <= set(present), value
    return value == present, value
