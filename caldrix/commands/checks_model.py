"""What the trials of a model say about it. Pure, but for the look at its file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from caldrix.commands.checks import Check, fail, ok, warn
from caldrix.commands.measure import SCHEMA, Timed
from caldrix.commands.table import in_units
from caldrix.models.refs import resolve
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Member
from caldrix.remote.address import is_remote

SLOWER: Final = 0.85
"""A choice of threads that reaches less than this share of the best one is worth a word."""
POOR_RESUME: Final = 0.5
SLOW_KERNELS: Final = "without repacked kernels"


def file_check(reference: str) -> Check:
    """Is there a sound file? Reads its beginning."""
    if is_remote(reference):
        return ok("file", f"{reference} is served by another engine, which holds the file")
    try:
        path = resolve(reference)
        size = path.stat().st_size
    except Refused as refusal:
        if refusal.code == "model_not_found":
            return fail(
                "file", refusal.message, f"caldrix models shows what is known; caldrix pull {reference} fetches"
            )
        return fail("file", refusal.message, f"fetch it again (caldrix pull {reference}), or take another file")
    except OSError as error:
        return fail("file", f"{reference} cannot be read: {error.strerror}", "give it the right owner and mode")
    return ok("file", f"{path}: GGUF, {in_units(size)}", path=str(path), bytes=size)


def checks_of(record: Mapping[str, Any], limit_bytes: int, rebuild: str) -> list[Check]:
    """The checks that one record of a trial answers; those of the speed come from `speed_check`."""
    match record["trial"]:
        case "load":
            member = Member.model_validate(record["member"])
            return [fit_check(member, record["took_ms"], limit_bytes), template_check(member), *_notes(member, rebuild)]
        case "constraint":
            return [constraint_check(str(record["text"]), str(record["finish"]), int(record["took_ms"]))]
        case "prefix":
            return [prefix_check(Timed(**record["cold"]), Timed(**record["warm"]))]
        case "refused":
            return [refused_check(str(record["code"]), str(record["message"]), rebuild)]
        case "died":
            return [_died_check(record, rebuild)]
        case _:
            return []


def fit_check(member: Member, took_ms: int | None, limit: int) -> Check:
    """A member's footprint and its context budget against what members may take."""
    needs = member.footprint_bytes + member.context_budget_bytes
    how = "is loaded in the running pool" if took_ms is None else f"loaded in {took_ms / 1000:.1f} s"
    found = (
        f"{how}: {in_units(member.footprint_bytes)} and {in_units(member.context_budget_bytes)} for prefixes, "
        f"of at most {in_units(limit)}; window {member.window} tokens, {member.threads} threads, {member.lane}"
    )
    facts = {
        "footprint_bytes": member.footprint_bytes,
        "context_budget_bytes": member.context_budget_bytes,
        "limit_bytes": limit,
        "window": member.window,
        "threads": member.threads,
        "load_ms": took_ms,
    }
    if needs > limit:
        return fail("fit", found, "lower --window or --context-budget, or take a smaller model", **facts)
    return ok("fit", found, **facts)


def template_check(member: Member) -> Check:
    template = member.template
    system = {"native": "system messages as they are", "folded": "system messages folded into the first user turn"}
    words = [
        "the model's own" if template.source == "gguf" else f"a {template.source} format",
        system.get(template.system, f"system messages: {template.system}"),
        *(["neighbours of one role merged"] if template.alternates else []),
        "appending leaves earlier rows alone" if template.prefix_stable else "appending changes earlier rows",
    ]
    found, facts = "; ".join(words), template.model_dump()
    if template.source == "plain":
        fix = "take an instruction-tuned model: one without a chat template has rarely learned to converse"
        return warn("template", f"{found}: the model has no usable chat template", fix, **facts)
    if not template.prefix_stable:
        fix = "take another model, or another file of it: much of each prompt is computed again on every turn"
        return warn("template", found, fix, **facts)
    return ok("template", found, **facts)


def _notes(member: Member, rebuild: str) -> list[Check]:
    return [warn("note", note, rebuild) if SLOW_KERNELS in note else ok("note", note) for note in member.notes]


def constraint_check(text: str, finish: str, took_ms: int) -> Check:
    """Did the answer under a JSON schema follow it?"""
    fix = "report it, with the model and caldrix's version: a constrained answer has to follow its schema"
    try:
        value = json.loads(text)
    except ValueError:
        return fail("constraint", f"asked for JSON, and got {text[:60]!r} ({finish})", fix)
    keys, types = set(SCHEMA["required"]), {"answer": str, "sure": bool}
    if not isinstance(value, dict) or set(value) != keys or not all(type(value[key]) is types[key] for key in keys):
        return fail("constraint", f"the JSON {text[:60]} does not follow the schema", fix)
    return ok("constraint", f"a JSON schema was compiled and followed: {text} in {took_ms} ms", took_ms=took_ms)


def prefix_check(cold: Timed, warm: Timed) -> Check:
    """A prompt that begins as an earlier one against that earlier one."""
    ratio = warm.prefill_ms / cold.prefill_ms if cold.prefill_ms else None
    share = "too quick to be compared" if ratio is None else f"{ratio:.2f} of the time"
    found = (
        f"a prompt of {cold.prompt} tokens cold in {cold.prefill_ms} ms; one of {warm.prompt} that begins so, resumed "
        f"at row {warm.resumed}, in {warm.prefill_ms} ms: {share}"
    )
    facts = {"cold_ms": cold.prefill_ms, "warm_ms": warm.prefill_ms, "ratio": ratio, "resumed": warm.resumed}
    if warm.resumed < cold.prompt // 2:
        fix = "give the pool a --context-budget for prefixes; 0 keeps none"
        return warn("prefix store", f"{found}: little or nothing was reused", fix, **facts)
    if ratio is not None and ratio > POOR_RESUME:
        fix = "end what else uses the cores, or give the pool a larger --context-budget, and try again"
        return warn("prefix store", found, fix, **facts)
    return ok("prefix store", found, **facts)


def refused_check(code: str, message: str, rebuild: str) -> Check:
    fixes = {
        "memory": "unload a member, lower --window or --context-budget, or take a smaller model",
        "model_refused": rebuild if "SIG" in message else "mend what it names, or take another file or model",
        "model_not_found": "caldrix models shows what is known, and caldrix pull fetches it",
        "footprint_unknown": "unload the other members: this one is loaded alone only",
    }
    return fail(
        "model", message, fixes.get(code, "try again; if it stays so, report it with the model's name"), code=code
    )


def _died_check(record: Mapping[str, Any], rebuild: str) -> Check:
    said = f"; it last said: {record['said']}" if record["said"] else ""
    found = f"native code ended the trial during {record['during']!r}: {record['how']}{said}"
    fix = (
        f"rebuild the engine for this processor: {rebuild}"
        if str(record["how"]) == "SIGILL"
        else ("try --threads 1 and a smaller --window; if it stays so, take another file of the model")
    )
    return fail("model", found, fix, during=record["during"], how=record["how"])


def speed_check(records: Sequence[Mapping[str, Any]], *, on_pool: bool) -> Check | None:
    """The rates by number of threads, and which one wins against what the member took; None without a rate."""
    speeds = [record for record in records if record["trial"] == "speed"]
    if not speeds:
        return None
    chosen = next((int(record["member"]["threads"]) for record in records if record["trial"] == "load"), 0)
    skipped = [str(record["threads"]) for record in records if record["trial"] == "speed skipped"]
    table = "; ".join(f"{_threads(speed['threads'])} {_rates(speed)}" for speed in speeds)
    left = f"; not tried for time: {', '.join(skipped)} threads" if skipped else ""
    facts = {"speeds": [dict(speed) for speed in speeds], "chosen": chosen}
    if len(speeds) == 1:
        other = "; other numbers of threads are tried where no pool holds the model" if on_pool else ""
        return ok("speed", f"{table}{left}{other}", **facts)
    best = max(speeds, key=lambda speed: speed["decode"] or 0.0)
    found = f"{table}{left}; {_threads(best['threads'])} decodes fastest"
    mine = next((speed for speed in speeds if speed["threads"] == chosen), best)
    if (mine["decode"] or 0.0) < SLOWER * (best["decode"] or 0.0):
        fix = f"start the pool with --threads {best['threads']}, or end what else uses the cores"
        return warn("speed", f"{found}, and {chosen} are taken unasked", fix, **facts)
    return ok("speed", found, **facts)


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _rates(speed: Mapping[str, Any]) -> str:
    prefill, decode = (f"{rate:.1f}" if rate else "?" for rate in (speed["prefill"], speed["decode"]))
    return f"{prefill} prefill, {decode} decode tok/s"
