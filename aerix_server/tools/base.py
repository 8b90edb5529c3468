"""What a tool is: a name, a description, an input model and one coroutine that gives text or raises.

A tool raises ToolError for what the model should be told (`error: …`) and Refusal for what must not be done
(`refused: …`); neither ends the loop. Anything else that escapes is a fault of ours and is logged as one.
"""

from __future__ import annotations

import asyncio
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from aerix_server.config.bounds import LARGEST_NUMBER, NAME_CHARS
from aerix_server.config.settings import Settings
from aerix_server.protocol.events import Check
from aerix_server.tools.shared import SharedFiles


class _Told(Exception):
    """`next_step` is one sentence on what to try next, or empty. It is kept apart: the message says all without it."""

    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.next_step = next_step


class ToolError(_Told):
    """The call could not be done; the model reads `error: <message>`."""


class Refusal(_Told):
    """The call must not be done; the model reads `refused: <message>`."""


class ToolInput(BaseModel):
    """Wrong types and unknown fields are errors the model reads; a field's docstring is its description."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


Name = Annotated[str, Field(max_length=NAME_CHARS)]
"""A short text: a path, a pattern, an address."""
Count = Annotated[int, Field(ge=1, le=LARGEST_NUMBER)]
"""A number of lines or matches, from 1 up."""


@dataclass(frozen=True)
class Output:
    """What a call gave. `text` is whole: capping it is the runtime's. `whole` is a file that already holds all of it,
    when that is longer than `text` (bash keeps a flood on disk); `checks` are commands that ran to their end."""

    text: str
    touched: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    whole: Path | None = None


class PlanPort(Protocol):
    """The agent's plan. `write` waits for the user where the plan is gated and gives the text that stands; it raises
    Refusal when the user aborted."""

    async def read(self) -> str: ...
    async def write(self, text: str) -> str: ...


class ContextPort(Protocol):
    """The agent's context, for the context tool; each op's answer is the text the model reads."""

    async def status(self) -> str: ...
    async def drop(self, ids: list[str]) -> str: ...
    async def summarize(self, ids: list[str], text: str) -> str: ...
    async def pin(self, ids: list[str], pinned: bool) -> str: ...
    async def note(self, text: str) -> str: ...


class Leftover(Protocol):
    """Processes that outlived the command that started them."""

    def end(self) -> None:
        """Ask for their end (TERM, then KILL); returns at once."""
        ...

    def gone(self) -> bool:
        """True when nothing of them is left to wait for."""
        ...

    def unended(self) -> list[str]:
        """What could not be ended, each as `pid N (name)`; to be asked once they are gone."""
        ...


class JobsPort(Protocol):
    """Background commands of one agent; an implementation is `tools.jobs.Jobs`."""

    async def start(self, command: str, timeout_s: float) -> str:
        """Start it and give its id (j1, j2, …). Raises ToolError when it cannot be started."""
        ...

    def keep(self, leftover: Leftover) -> None:
        """Hold what a foreground command left running, so that it ends with the agent."""
        ...


class PiecesPort(Protocol):
    """Work given to other agents."""

    async def run(self, call: str, brief: str, check: str, definition: str | None, member: str | None) -> Output:
        """Run a piece to its end; `call` is the id of the call that asks. Raises ToolError for names unknown here."""
        ...


class NoPieces:
    """Of an agent that may not delegate."""

    async def run(self, call: str, brief: str, check: str, definition: str | None, member: str | None) -> Output:
        raise ToolError("this agent may not give work to others")


@dataclass
class Views:
    """What the agent has seen of each file: path → content hash, for the stale-read guard. One per agent."""

    seen: dict[Path, str] = field(default_factory=dict)

    def saw(self, path: Path, content: str) -> None:
        """Note that the file was seen with this content hash; the latest stands last."""
        self.seen.pop(path, None)
        self.seen[path] = content


@dataclass(frozen=True)
class ToolContext:
    """Everything a call may use. One per agent; `cancelled` is set when its work must end (checked every 100 ms)."""

    cwd: Path
    settings: Settings
    cancelled: asyncio.Event
    views: Views
    spool_dir: Path
    plan: PlanPort
    context: ContextPort
    jobs: JobsPort
    cache: dict[str, Any]
    """Of one request: repo_map keeps its text here."""
    overlay: Callable[[Path], str | None] = lambda _path: None
    """The unsaved text of an open editor buffer, or None."""
    before_write: Callable[[Path], None] = lambda _path: None
    """Told the real path of a file right before it is changed. From any thread; raises nothing."""
    skills: Mapping[str, str] = field(default_factory=dict)
    """Name → text of the skills that are installed."""
    pieces: PiecesPort = field(default_factory=NoPieces)
    call: str = ""
    """The id of the call under way."""

    def of_call(self, call: str) -> ToolContext:
        """The context for one call."""
        return dataclasses.replace(self, call=call)

    agent: str = "a1"
    """The id of the agent, as others are told of it."""
    shared: SharedFiles = field(default_factory=SharedFiles)
    """Of one request: what its agents share about files."""


Input = TypeVar("Input", bound=ToolInput)


class Tool(ABC, Generic[Input]):
    """One tool. A subclass sets the three class fields and `run`; it keeps no state."""

    name: ClassVar[str]
    description: str
    """What the model reads: what it does, its limits, one line where that is enough."""
    input_model: type[Input]
    only_looks: ClassVar[bool] = False
    """It changes nothing: a second such call with the same input, before anything else was done, gives the same."""
    at_the_end: ClassVar[bool] = False
    """Its calls run after the others of their turn, all at one time."""
    limit_s: ClassVar[float | None] = None
    """The most seconds that a call may take; None for a tool that bounds its own work, or waits for the user."""

    @abstractmethod
    async def run(self, call: Input, ctx: ToolContext) -> Output:
        """Raises ToolError and Refusal."""

    def input_schema(self) -> dict[str, Any]:
        """The input's JSON Schema with its descriptions, as the model is told of it."""
        return self.input_model.model_json_schema()

    def schema(self) -> dict[str, Any]:
        """The same for the turn grammar: no titles, no defaults, no descriptions, nothing additional."""
        return slim_schema(self.input_schema())


def slim_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A pydantic schema without what a grammar has no use for. `$defs` are not expected in a tool's input.

    A field that may be null becomes its other type: leaving it out says the same, and costs the model less.
    """
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        return slim_schema(choices[0])
    return {key: _slim(key, value) for key, value in schema.items() if key not in _UNUSED}


_UNUSED = frozenset({"title", "description", "default"})


def _slim(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: slim_schema(inner) for name, inner in value.items()}
    if isinstance(value, dict):
        return slim_schema(value)
    if isinstance(value, list):
        return [slim_schema(item) if isinstance(item, dict) else item for item in value]
    return value
