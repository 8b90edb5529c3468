"""A chat template that only the server has: learnt from it, one skeleton for each order of roles.

The server renders a chat of place-holders once; the texts are put in here. So a changed text costs no rendering, and
no text of a user passes through the server's template. Whether the template trims texts is learnt, too.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final

import jinja2

from caldrix.engine.strategy import PROBES, ChatTemplate, Message, arrange
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Role, TemplateInfo

Chat = Sequence[tuple[Role, str]]
Render = Callable[[Chat], str]
"""The server's rendering of a chat, generation header included. Raises ServerFault where its template refuses."""

PIECES_KEPT: Final = 200_000
"""Of all skeletons together; a chat of 1,000 messages has 1,001."""
_NO_SOURCE: Final = jinja2.Template("")
_SLOT: Final = re.compile(r"slot(\d{6})slot")


class Skeletons:
    """The template's text around the messages, by the order of their roles. May be used from any thread."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._known: OrderedDict[tuple[Role, ...], tuple[str, ...]] = OrderedDict()
        self._lock = Lock()

    def of(self, roles: tuple[Role, ...]) -> tuple[str, ...]:
        """What stands before, between and after the messages. Raises ServerFault, and ValueError where the template
        drops, doubles or moves one."""
        with self._lock:
            if (known := self._known.get(roles)) is not None:
                self._known.move_to_end(roles)
                return known
        skeleton = self._learn(roles)
        with self._lock:
            self._known[roles] = skeleton
            while len(self._known) > 1 and sum(map(len, self._known.values())) > PIECES_KEPT:
                self._known.popitem(last=False)
        return skeleton

    def trimmed(self, roles: tuple[Role, ...]) -> frozenset[Role]:
        """The roles whose texts lose the blanks around them."""
        text = self._render([(role, f"  \n slot{number:06}slot \n  ") for number, role in enumerate(roles)])
        return frozenset(
            role for number, role in enumerate(roles) if f"  \n slot{number:06}slot \n  " not in text
        )  # one side alone is trimmed by no template that is known

    def _learn(self, roles: tuple[Role, ...]) -> tuple[str, ...]:
        text = self._render([(role, f"slot{number:06}slot") for number, role in enumerate(roles)])
        parts = _SLOT.split(text)
        if [int(number) for number in parts[1::2]] != list(range(len(roles))):
            raise ValueError("the template does not show every message once and in order")
        return tuple(parts[::2])


@dataclass(frozen=True)
class ServerTemplate(ChatTemplate):
    """A `ChatTemplate` whose text comes from the server."""

    skeletons: Skeletons = field(kw_only=True)
    trimmed: frozenset[Role] = field(kw_only=True, default=frozenset())

    def render(self, messages: Sequence[Message]) -> str:
        arranged = arrange(messages, merge=self.merge, fold=self.fold)
        pieces = self.skeletons.of(tuple(message.role for message in arranged))
        texts = [message.content.strip() if message.role in self.trimmed else message.content for message in arranged]
        return "".join(piece + text for piece, text in zip(pieces, [*texts, ""], strict=True))

    def info(self) -> TemplateInfo:
        return TemplateInfo(
            source="server",
            system="folded" if self.fold else "native",
            alternates=self.merge,
            prefix_stable=self.prefix_stable,
        )


def learn_template(render: Render) -> ServerTemplate:
    """The server's template with the first way of serving it that keeps every message of every probe.

    Raises Refused("model_refused") where there is none.
    """
    template = ServerTemplate("", _NO_SOURCE, "", "", native=True, skeletons=Skeletons(render))
    fault: Exception | None = None
    for merge, fold in ((False, False), (True, False), (True, True)):
        candidate = replace(template, merge=merge, fold=fold)
        fault = _first_fault(candidate)
        if fault is None:
            roles: tuple[Role, ...] = ("user", "assistant", "user") if fold else ("system", "user", "assistant", "user")
            trimmed = candidate.skeletons.trimmed(roles)
            return replace(candidate, trimmed=trimmed, prefix_stable=_prefix_stable(candidate))
    raise Refused(
        "model_refused",
        f"the server's chat template cannot serve a chat with system, user and assistant messages: {fault}",
    )


def _first_fault(template: ServerTemplate) -> Exception | None:
    for roles in PROBES:
        try:
            template.render([Message(role, f"probe{number}q") for number, role in enumerate(roles)])
        except Exception as error:  # a refusal of the server, or a message that was dropped: both mean the next way
            return error
    return None


def _prefix_stable(template: ServerTemplate) -> bool:
    opening = [Message("system", "probe0q"), Message("user", "probe1q")]
    later = [*opening, Message("assistant", "probe2q"), Message("user", "probe3q")]
    return template.render(later).startswith(template.render(opening))
