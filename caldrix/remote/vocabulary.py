"""What the renderer must know of a server's vocabulary, found out by asking its tokenizer.

The control tokens are those of the chat template. A token of plain text is told from one of markup by what the
tokenizer makes of its text in odd company.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from caldrix.engine.backend import Vocabulary
from caldrix.engine.strategy import ChatTemplate, Message
from caldrix.protocol.messages import Role
from caldrix.remote.dialect import Dialect

_CHATS: Final[tuple[tuple[Role, ...], ...]] = (("system", "user", "assistant", "user"), ("user",))


def learn_vocabulary(dialect: Dialect, template: ChatTemplate) -> Vocabulary:
    """Raises ServerFault."""
    begin = dialect.begin_ids()
    control, user_defined = {}, {}
    for token, text in _candidates(dialect, template):
        if not dialect.parses_markup and dialect.tokenize(text) != [token]:
            control[text] = token
        elif _is_markup(dialect.tokenize, token, text):
            user_defined[text] = token
    markup = {**control, **user_defined}
    return Vocabulary(
        pieces=(),
        markup=markup,
        user_defined=frozenset(user_defined.values()),
        control=frozenset(control.values()),
        end_of_generation=frozenset(),
        strip_left=frozenset(token for text, token in markup.items() if _strips(dialect, f"a {text}", token, "a")),
        strip_right=frozenset(token for text, token in markup.items() if _strips(dialect, f"{text} a", token, "a")),
        bos=begin[0] if begin else None,
        bos_text=template.bos,
        eos_text=template.eos,
        add_bos=bool(begin),
    )


def _candidates(dialect: Dialect, template: ChatTemplate) -> Iterator[tuple[int, str]]:
    """Every token that the template's own text may hold, once."""
    seen = set()
    texts = [
        template.render([Message(role, f"probe{number}q") for number, role in enumerate(roles)]) for roles in _CHATS
    ]
    for text in [*texts, template.bos, template.eos]:
        for token in dialect.tokenize(text, markup=True) if text else []:
            if token not in seen:
                seen.add(token)
                yield token, dialect.detokenize([token])


def _is_markup(tokenize: Callable[[str], list[int]], token: int, text: str) -> bool:
    """Whether the text is this token wherever it stands, as no token of ordinary text is."""
    if len(text) < 3 or text.strip() != text or text.isalnum():
        return False
    return all(token in tokenize(company) for company in (f"x{text}x", f"{text[:-1]}{text}{text[1:]}", f".{text}."))


def _strips(dialect: Dialect, text: str, token: int, rest: str) -> bool:
    """Whether the token takes the blank beside it."""
    ids = dialect.tokenize(text, markup=True)
    plain = dialect.tokenize(rest)
    return ids in ([token, *plain], [*plain, token])
