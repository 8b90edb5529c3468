"""A model's chat template and the way it is served: probed once at load, so that no role order fails in mid-session.

Templates differ in what they refuse: a system message, a second one, two turns of one role in a row, a last assistant
turn. The first strategy under which every probe comes back whole, in order and once, is taken.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from caldrix.protocol.messages import Role, TemplateInfo

JOINT: Final = "\n\n"
PLAIN_FORMAT: Final = (
    "{% for message in messages %}### {{ message.role | capitalize }}\n{{ message.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}### Assistant\n{% endif %}"
)
PROBES: Final[tuple[tuple[Role, ...], ...]] = (
    ("user",),
    ("system", "user"),
    ("system", "system", "user"),
    ("system", "user", "user"),
    ("system", "user", "assistant"),
    ("system", "user", "assistant", "user"),
    ("system", "user", "assistant", "assistant", "user"),
)


@dataclass(frozen=True)
class Message:
    role: Role
    content: str


@dataclass(frozen=True)
class ChatTemplate:
    """A compiled template with its strategy. `merge`: neighbours of one role become one message; `fold`: the system
    messages open the first user message."""

    source: str
    compiled: jinja2.Template
    bos: str
    eos: str
    native: bool
    merge: bool = False
    fold: bool = False
    prefix_stable: bool = True

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt's text, generation header included. Raises jinja2.TemplateError when the template refuses."""
        arranged = arrange(messages, merge=self.merge, fold=self.fold)
        return self.compiled.render(
            messages=[{"role": message.role, "content": message.content} for message in arranged],
            add_generation_prompt=True,
            bos_token=self.bos,
            eos_token=self.eos,
        )

    def info(self) -> TemplateInfo:
        return TemplateInfo(
            source="gguf" if self.native else "plain",
            system="folded" if self.fold else "native",
            alternates=self.merge,
            prefix_stable=self.prefix_stable,
        )


def open_template(source: str | None, bos: str, eos: str) -> tuple[ChatTemplate, str | None]:
    """The template with the first strategy that serves every probe, and a note where it is not the model's own."""
    if source is None:
        return _plain(bos, eos), "the model has no chat template: prompts are written in a plain '### Role' format"
    try:
        template = ChatTemplate(source, _environment().from_string(source), bos, eos, native=True)
    except jinja2.TemplateError as error:
        return _plain(bos, eos), f"the model's chat template cannot be read ({error}): a plain format is used"
    for merge, fold in ((False, False), (True, False), (True, True)):
        candidate = replace(template, merge=merge, fold=fold)
        if all(_serves(candidate, roles) for roles in PROBES):
            return replace(candidate, prefix_stable=_prefix_stable(candidate)), None
    return _plain(
        bos, eos
    ), "the model's chat template drops or refuses turns however it is served: a plain format is used"


def arrange(messages: Sequence[Message], *, merge: bool, fold: bool) -> list[Message]:
    """Messages as a template wants them; nothing is dropped and the order stays."""
    arranged = list(messages)
    if fold:
        arranged = [Message("user", message.content) if message.role == "system" else message for message in arranged]
    if merge:
        arranged = [
            Message(role, JOINT.join(message.content for message in group))
            for role, group in groupby(arranged, key=lambda message: message.role)
        ]
    return arranged


def _plain(bos: str, eos: str) -> ChatTemplate:
    return ChatTemplate(PLAIN_FORMAT, _environment().from_string(PLAIN_FORMAT), bos, eos, native=False)


def _serves(template: ChatTemplate, roles: Sequence[Role]) -> bool:
    messages = [Message(role, f"probe{number}q") for number, role in enumerate(roles)]
    try:
        text = template.render(messages)
    except MemoryError:
        raise
    except Exception:  # a template may raise anything, and each kind means the same here: it does not serve
        return False
    places = [text.find(message.content) for message in messages]
    once = all(text.count(message.content) == 1 for message in messages)
    return once and places == sorted(places)


def _prefix_stable(template: ChatTemplate) -> bool:
    opening = [Message("system", "probe0q"), Message("user", "probe1q")]
    later = [*opening, Message("assistant", "probe2q"), Message("user", "probe3q")]
    return template.render(later).startswith(template.render(opening))


def _environment() -> ImmutableSandboxedEnvironment:
    """Templates come with models and are not trusted: they run in jinja's sandbox, with the names they expect."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda pattern: datetime.datetime.now().strftime(pattern)
    return environment


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
