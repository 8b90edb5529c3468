"""The settings tree. A key's documentation is the text under it; defaults are those of spec 3, section 2."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class Main(Section):
    model: str = "auto"
    """The model that runs every agent: a `.gguf` file or a catalogue name; `auto` is the embedded one."""
    flags: list[str] = []
    """Further words for `caldrix pool` when it is started."""


class Decision(Section):
    model: str | None = None
    """The model that routes requests; none: main routes."""


class Tune(Section):
    member: str | None = None
    """The model that reflects on a profile; none: main."""
    sessions: int = Field(20, ge=1)
    """How many recorded sessions tuning reads."""


class PoolSettings(Section):
    socket: str | None = None
    """The pool's socket; none: the pool's own default."""
    caldrix: str = "caldrix"
    """The command that starts a pool, split like a shell does."""
    start_timeout_secs: int = Field(900, ge=1)
    """How long a starting pool may take, download and load included."""
    max_connections: int = Field(4, ge=1)
    """Generations that run at once."""


class Server(Section):
    idle_timeout_secs: int = Field(1800, ge=0)
    """When the shared backend leaves, with no client and no running request; 0 never."""


class ToolCaps(Section):
    """Bytes of a result that reach the context; the whole goes to the spool."""

    read: int = Field(24_000, ge=256)
    bash: int = Field(12_000, ge=256)
    grep: int = Field(12_000, ge=256)
    glob: int = Field(8_000, ge=256)
    repo_map: int = Field(12_000, ge=256)
    agent: int = Field(6_000, ge=256)
    skill: int = Field(24_000, ge=256)


class Context(Section):
    soft_ratio: float = Field(0.70, gt=0, lt=1)
    """Above this share of the window a context is compacted before a turn."""
    target_ratio: float = Field(0.50, gt=0, lt=1)
    """Compaction goes down to this share."""
    max_new_tokens: int = Field(2048, ge=16)
    """The most tokens of one turn; never more than a quarter of the window."""
    tool_caps: ToolCaps = ToolCaps()
    skills_chars: int = Field(2000, ge=0)
    """Characters the list of skills may take in the system segment."""


class Delegation(Section):
    planner_tools: list[str] = ["repo_map", "agent", "plan", "context"]
    """What the root may call on the routes `edit` and `plan`."""
    parallel: int = Field(4, ge=1)
    """Pieces of one turn that run at once."""
    depth: int = Field(3, ge=0)
    """An agent this deep cannot delegate further; the root has depth 0."""
    retries: int = Field(2, ge=0)
    """Times an implementer is run again after its verifier's fail."""
    max_turns: int = Field(40, ge=1)
    """Turns of one agent."""


class Permissions(Section):
    allow: list[str] = []
    """Rules for calls that run unasked, in Claude Code's grammar."""
    ask: list[str] = []
    """Rules for calls that wait for an approval."""
    deny: list[str] = []
    """Rules for calls that are refused; deny beats ask, ask beats allow."""
    mode: Literal["ask", "auto", "read-only"] = "auto"
    """What happens to a call that no rule names."""


class Sandbox(Section):
    mode: Literal["off", "workspace", "read-only"] = "off"
    """Where a `bash` command may write: anywhere, in the working directory, or nowhere."""
    network: bool = True
    """Whether a `bash` command in a sandbox may use the network."""


class Routing(Section):
    enabled: bool = True
    """Whether a request's shape is chosen by the model; off: every request is an `edit`."""
    min_probability: float = Field(0.0, ge=0, le=1)
    """Below it the choice is `edit`, and the event says so."""


class Sampling(Section):
    """Beyond the specification: how turns are sampled."""

    temperature: float = Field(0.0, ge=0, le=2)
    """0 takes the likeliest token."""
    seed: int = Field(0, ge=0)
    """The seed of a session's first turn; each turn adds one."""


class Assist(Section):
    """Beyond the specification: help that small models need; each can be switched off."""

    known_paths: bool = True
    """A call of `read`, `edit`, `grep` or `glob` can only name a path that is there, or one outside the directory."""
    unique_old: bool = False
    """An `edit` of a file that was read can only name an `old` that stands in it exactly once. Off: a model that would
    otherwise be told that its text is not there is led to change another."""
    flag_doubts: bool = False
    """Calls whose tool or path the model found unlikely are marked. Nothing is drafted then: copies are slower."""
    doubt_below: float = Field(0.5, ge=0, le=1)
    """What `flag_doubts` marks: a tool or a path with a token that the model gave less than this probability."""
    change_course: bool = True
    """A tool that is called again for what is known already is not offered until something new was done."""
    ask_for_changes: bool = True
    """A request on the route `edit` that would end with no file changed is asked once whether it is done."""
    next_steps: bool = True
    """The result of a failed call says what to try next."""


class Settings(Section):
    main: Main = Main()
    decision: Decision = Decision()
    tune: Tune = Tune()
    pool: PoolSettings = PoolSettings()
    server: Server = Server()
    context: Context = Context()
    delegation: Delegation = Delegation()
    permissions: Permissions = Permissions()
    sandbox: Sandbox = Sandbox()
    routing: Routing = Routing()
    sampling: Sampling = Sampling()
    assist: Assist = Assist()

    def fingerprint(self) -> str:
        """A short hash of every value, for the log."""
        text = json.dumps(self.model_dump(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


# Keys a project file may not set: each widens what the user trusted (marked T in the specification).
TRUSTED_KEYS = frozenset(
    {
        "main.flags",
        "pool.socket",
        "pool.caldrix",
        "permissions.allow",
        "permissions.ask",
        "permissions.deny",
        "permissions.mode",
        "sandbox.mode",
        "sandbox.network",
    }
)

# Keys that are read and checked although nothing acts on them in this version: who sets one is told.
WAITING = (
    "tune.",
    "server.",
    "permissions.",
    "sandbox.",
    "context.skills_chars",
)

SettingsTree = dict[str, Any]
