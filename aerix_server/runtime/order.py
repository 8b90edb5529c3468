"""A piece of work given to another agent: its texts, what its attempts gave, and the outcome its caller reads. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aerix_server.pool.port import MemberState
from aerix_server.profile.prompts import fill
from aerix_server.protocol.events import Check
from aerix_server.runtime.context import Draft
from aerix_server.runtime.ports import Definition, Ended
from aerix_server.tools.base import Output


@dataclass(frozen=True)
class Order:
    """`id` is `<caller>.<call id>`, such as a1.c3."""

    id: str
    brief: str
    check: str
    definition: Definition | None
    member: MemberState


@dataclass(frozen=True)
class Verdict:
    passed: bool
    reason: str


@dataclass(frozen=True)
class Attempt:
    """What an implementer, and the verifier after it, did. `verdict` is None where no verifier was asked."""

    ended: Ended
    files: tuple[str, ...]
    checks: tuple[Check, ...]
    verdict: Verdict | None = None

    @property
    def passed(self) -> bool:
        return self.verdict is not None and self.verdict.passed


def brief_drafts(order: Order, prompts: Mapping[str, str], before: Sequence[Attempt]) -> list[Draft]:
    """What an implementer is told: its definition, its brief, and why the attempt before it did not hold."""
    brief = fill(prompts["brief"], {"brief": order.brief, "check": order.check})
    drafts = [Draft("user", "brief", brief)]
    if order.definition is not None and order.definition.body.strip():
        drafts.insert(0, Draft("user", "definition", order.definition.body.strip()))
    if before and (verdict := before[-1].verdict) is not None:
        drafts.append(
            Draft(
                "user",
                "failure",
                f"[verification failed] This piece was done before, and a check found: {verdict.reason}\n"
                f"{_changed(before)} Mend what is wrong; do not begin anew where that is not needed.",
            )
        )
    return drafts


def _changed(before: Sequence[Attempt]) -> str:
    files = _files(before)
    return f"Its changes are still there, in {', '.join(files)}." if files else "Its tools named no changed file; look."


def verifier_text(order: Order, template: str, done: Attempt) -> str:
    """The verifier's prompt, filled with what the implementer claims and what it is known to have touched."""
    values = {
        "brief": order.brief,
        "check": order.check,
        "summary": done.ended.text or "(nothing)",
        "files": ", ".join(done.files) or "none",
    }
    return fill(template, values)


def verdict_of(ended: Ended) -> Verdict:
    """A verifier that ends without a verdict counts as a fail."""
    said: Any = ended.output
    if ended.outcome == "final" and isinstance(said, dict) and said.get("verdict") in ("pass", "fail"):
        return Verdict(said["verdict"] == "pass", str(said.get("reason", "")))
    return Verdict(False, f"the verifier gave no verdict: it ended {ended.outcome} ({ended.reason or 'no reason'})")


def outcome_json(attempts: Sequence[Attempt]) -> Output:
    """The result of a piece. `files_touched` is what the tools of all its agents did, `checks_run` what those of the
    last attempt ran: earlier checks tell nothing of what stands now."""
    last = attempts[-1]
    outcome, reason = _outcome(attempts)
    files = _files(attempts)
    # The summary last: a result over its cap is cut at its end.
    value: dict[str, Any] = {"outcome": outcome} | ({} if reason is None else {"reason": reason})
    value |= {"files_touched": files, "checks_run": [check.model_dump() for check in last.checks]}
    value["summary"] = last.ended.text or ""
    return Output(json.dumps(value, ensure_ascii=False), touched=tuple(files))


def _outcome(attempts: Sequence[Attempt]) -> tuple[str, str | None]:
    last = attempts[-1]
    if last.ended.outcome != "final":
        return last.ended.outcome, last.ended.reason
    if last.passed:
        return "done", None
    count = f"{len(attempts)} attempt" + ("s" if len(attempts) > 1 else "")
    return "failed", f"verification failed after {count}: {last.verdict.reason if last.verdict else ''}"


def _files(attempts: Sequence[Attempt]) -> list[str]:
    return list(dict.fromkeys(file for attempt in attempts for file in attempt.files))


def touched_twice(touched: Mapping[str, Sequence[str]]) -> str | None:
    """A note on files that several pieces of one turn changed; None without any. `touched`: call id → files."""
    by_file: dict[str, list[str]] = {}
    for call, files in touched.items():
        for file in dict.fromkeys(files):
            by_file.setdefault(file, []).append(call)
    shared = {file: calls for file, calls in by_file.items() if len(calls) > 1}
    if not shared:
        return None
    lines = [f"{file}: {', '.join(calls)}" for file, calls in sorted(shared.items())]
    return "\n".join(
        ["[shared files] Pieces that ran at once changed the same files. Look whether both changes hold:", *lines]
    )
