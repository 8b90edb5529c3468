"""Events → lines for people. Pure: values in, text without control characters out."""

from __future__ import annotations

from typing import Any, Final

from aerix_cli.texts import one_line

# What tells most about a call, by name of the field; the first that is there is shown.
_TELLING: Final = ("path", "command", "pattern", "brief", "name", "op", "url", "query")
_PHASES: Final = {
    "autostart": "waiting for the pool to start",
    "queue": "waiting in the queue",
    "prefill": "reading the prompt",
    "download": "downloading the model",
    "precheck": "checking the model",
    "load": "loading the model",
}
MEGABYTE: Final = 1_000_000
ROOT: Final = "a1"


def event_lines(event: dict[str, Any]) -> list[str]:
    """The lines that tell an event; none for what only the log needs. `event` is the params of `aerix/event`."""
    lines = _LINES.get(str(event.get("type")))
    return [] if lines is None else lines(event)


def waiting_line(event: dict[str, Any]) -> str | None:
    """What a `progress` event says is waited for; None for another event."""
    if event.get("type") != "progress":
        return None
    phase, done, total = event.get("phase", ""), event.get("done", 0), event.get("total", 0)
    text = _PHASES.get(phase, one_line(str(phase)))
    if phase == "queue":
        text = f"{text}, place {done}" if done else "waiting for the model"
    elif phase == "prefill":
        text += f": {done} of {total} rows"
    elif phase == "autostart":
        text += f": {done} of at most {total} s"
    elif total:
        text += f": {done / MEGABYTE:.0f} of {total / MEGABYTE:.0f} MB" if total >= MEGABYTE else f": {done} of {total}"
    detail = event.get("detail")
    return f"{text} ({one_line(str(detail))})" if detail else text


def call_line(call: dict[str, Any], agent: object = None) -> str:
    """`[read c1] src/app.py`; with its agent's id before it where that is not the root."""
    given = call.get("input") or {}
    shown = next((given[name] for name in _TELLING if isinstance(given.get(name), str)), "")
    return f"{_who(agent)}{_head(call.get('tool'), call.get('id'))} {one_line(shown)}".rstrip()


def _head(tool: object, call: object) -> str:
    return f"[{one_line(str(tool))} {one_line(str(call))}]"


def _who(agent: object) -> str:
    return "" if agent in (None, ROOT) else f"{one_line(str(agent))} "


def end_line(event: dict[str, Any]) -> str:
    """Outcome and stats of a request."""
    usage, diff = event.get("usage") or {}, event.get("diff") or {}
    parts = [
        str(event.get("outcome")),
        f"{event.get('ms', 0) / 1000:.1f} s",
        f"{usage.get('completion_tokens', 0)} tokens",
    ]
    if diff.get("files"):
        parts.append(f"+{diff['added']} -{diff['removed']} in {counted(diff['files'], 'file')}")
    return one_line(" · ".join(parts))


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _start(event: dict[str, Any]) -> list[str]:
    facts = [f"aerix {event.get('version')}", str(event.get("model"))]
    if event.get("window"):
        facts += [f"lane {event.get('lane')}", f"window {event.get('window')}"]
    return [one_line(" · ".join([*facts, f"session {event.get('id')}"]))]


def _route(event: dict[str, Any]) -> list[str]:
    if event.get("forced"):
        return []
    chosen = [score for score in event.get("scores", []) if score.get("option") == event.get("choice")]
    share = f" ({chosen[0]['probability']:.0%})" if chosen else ""
    return [one_line(f"route: {event.get('choice')}{share}")]


def _message(event: dict[str, Any]) -> list[str]:
    lines, agent = [], event.get("agent")
    if event.get("role") == "assistant":
        lines = [call_line(call, agent) for call in event.get("calls") or []]
        if event.get("error"):
            lines.append(f"{_who(agent)}asked again: {one_line(str(event['error']))}")
    result = event.get("result")
    if result and result.get("error"):
        first = str(result.get("text", "")).split("\n", 1)[0]
        lines.append(f"{_who(agent)}{_head(result.get('tool'), result.get('call'))} {one_line(first)}")
    return lines


def _compaction(event: dict[str, Any]) -> list[str]:
    if event.get("blocked"):
        return []
    return [f"{_who(event.get('agent'))}context compacted: {event.get('before')} to {event.get('after')} tokens"]


def _plan(event: dict[str, Any]) -> list[str]:
    if event.get("op") != "write":
        return []
    return ["plan:"] + [f"  {one_line(line)}" for line in str(event.get("text", "")).split("\n") if line.strip()]


def _job(event: dict[str, Any]) -> list[str]:
    name, what = one_line(str(event.get("job"))), event.get("event")
    if what == "start":
        return [f"[job {name}] {one_line(str(event.get('command', '')))}"]
    how = "killed" if what == "killed" else f"exited {event.get('code')}"
    return [f"[job {name}] {how}"]


def _spawn(event: dict[str, Any]) -> list[str]:
    if event.get("kind") == "root":
        return []
    return [one_line(f"{event.get('kind')} {event.get('agent')} started: {event.get('brief') or ''}").rstrip(": ")]


def _agent_end(event: dict[str, Any]) -> list[str]:
    if event.get("agent") == ROOT:
        return []
    reason = f": {event['reason']}" if event.get("reason") else ""
    return [one_line(f"{event.get('agent')} ended: {event.get('outcome')}{reason}")]


def _verify(event: dict[str, Any]) -> list[str]:
    return [one_line(f"verified {event.get('piece')}: {event.get('verdict')}: {event.get('reason')}")]


def _notice(event: dict[str, Any]) -> list[str]:
    level, text = event.get("level"), str(event.get("text", ""))
    mark = "" if level == "info" else f"{level}: "
    return [mark + one_line(text, 2000)]


_LINES: Final = {
    "session.start": _start,
    "route": _route,
    "agent.spawn": _spawn,
    "message": _message,
    "compaction": _compaction,
    "plan": _plan,
    "job": _job,
    "verify": _verify,
    "agent.end": _agent_end,
    "request.end": lambda event: [end_line(event)],
    "notice": _notice,
}
