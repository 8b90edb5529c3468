"""Rendering: the model's template, and text that stays text. The double's vocabulary makes ids readable."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caldrix.engine.jobs import Part
from caldrix.engine.strategy import ChatTemplate, open_template
from caldrix.engine.template import CACHE_BYTES, Cache, Renderer
from caldrix.protocol.errors import Refused
from tests.doubles.toy_backend import END, START, TEMPLATE, VOCABULARY, Script, ToyBackend

BACKEND = ToyBackend(Script([""]))
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
)
FIRST_SYSTEM_ONLY = (
    "{% if messages[0].role == 'system' %}S:{{ messages[0].content }}{% endif %}"
    "{% for m in messages %}{% if m.role != 'system' %}{{ m.role }}:{{ m.content }};{% endif %}{% endfor %}assistant:"
)


def renderer(template: str | None = TEMPLATE) -> Renderer:
    return Renderer(VOCABULARY, BACKEND.tokenize, open_template(template, "", "<|im_end|>")[0])


def text_of(ids: tuple[int, ...]) -> str:
    return b"".join(VOCABULARY.pieces[token] for token in ids).decode()


def test_ids_equal_the_whole_rendered_prompt() -> None:
    rendered = renderer().render([Part("system", "be good"), Part("user", "hi\n")])
    whole = "<|im_start|>system\nbe good<|im_end|>\n<|im_start|>user\nhi\n<|im_end|>\n<|im_start|>assistant\n"
    assert text_of(rendered.ids) == whole
    assert rendered.ids.count(START) == 3 and rendered.ids.count(END) == 2
    assert rendered.counts == (7, 3)


@given(
    st.lists(
        st.sampled_from(["<|im_end|>", "<|im_start|>", "<|pad|>", "a", "\n", "<|im_", "é", "\U000f0000"]), max_size=12
    )
)
def test_control_tokens_in_text_stay_text(pieces: list[str]) -> None:
    text = "".join(pieces)
    rendered = renderer().render([Part("user", text)])
    assert rendered.ids.count(START) == 2 and rendered.ids.count(END) == 1
    assert text_of(rendered.ids) == f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    assert rendered.counts == (len(text.encode()),)


def test_a_user_defined_token_in_text_is_cut() -> None:
    """llama.cpp finds user-defined tokens even with special parsing off: no piece may hold one whole."""
    asked: list[str] = []

    def tokenize(text: str) -> list[int]:
        asked.append(text)
        return BACKEND.tokenize(text)

    vocabulary = dataclasses.replace(
        VOCABULARY,
        pieces=(*VOCABULARY.pieces, b"<tool>"),
        markup={**VOCABULARY.markup, "<tool>": 260},
        user_defined=frozenset({260}),
    )
    rendered = Renderer(vocabulary, tokenize, open_template(TEMPLATE, "", "")[0]).render([Part("user", "a <tool> b")])
    assert 260 not in rendered.ids and not any("<tool>" in text for text in asked)


def test_outputs_keep_the_ids_they_were_generated_with() -> None:
    turn = renderer()
    given_ids = turn.render([Part("user", "q"), Part("assistant", "ab", (98, 97))])
    assert tuple(given_ids.ids[list(given_ids.ids).index(98) :][:2]) == (98, 97) and given_ids.counts == (1, 2)
    turn.remember("xyz", (7, 8))
    remembered = turn.render([Part("assistant", "xyz")])
    assert 7 in remembered.ids and remembered.counts == (2,)
    assert turn.render([Part("user", "xyz")]).counts == (3,), "only an assistant's text is an output"


@pytest.mark.parametrize(
    ("source", "merge", "fold", "native"),
    [
        (TEMPLATE, False, False, True),
        (ALTERNATING, True, True, True),
        (FIRST_SYSTEM_ONLY, True, False, True),
        (None, False, False, False),
        ("{% for m in messages", False, False, False),
        ("{{ messages[-1].content }}", False, False, False),
    ],
    ids=["chatml", "alternating", "first-system-only", "none", "broken", "drops-turns"],
)
def test_probe_finds_a_strategy(source: str | None, merge: bool, fold: bool, native: bool) -> None:
    template, note = open_template(source, "", "")
    assert (template.merge, template.fold, template.native) == (merge, fold, native)
    assert (note is None) == native


def test_every_role_order_renders_under_a_strict_template() -> None:
    rendered = renderer(ALTERNATING).render(
        [
            Part("system", "one"),
            Part("system", "two"),
            Part("user", "three"),
            Part("assistant", "four"),
            Part("user", "five"),
            Part("user", "six"),
        ]
    )
    assert text_of(rendered.ids) == "[user]one\n\ntwo\n\nthree[assistant]four[user]five\n\nsix[assistant]"


def test_a_template_that_refuses_is_a_refusal_with_its_reason() -> None:
    source = "{{ raise_exception('no tools here') }}"
    template = ChatTemplate(
        source, open_template(TEMPLATE, "", "")[0].compiled.environment.from_string(source), "", "", True
    )
    with pytest.raises(Refused, match="no tools here"):
        Renderer(VOCABULARY, BACKEND.tokenize, template).render([Part("user", "x")])


def test_templates_run_in_a_sandbox() -> None:
    template, note = open_template("{{ messages.__class__.__mro__ }}", "", "")
    assert not template.native and note


def test_any_number_of_control_tokens_in_text() -> None:
    """More than there are private-use characters to hide them behind."""
    text = "<|im_end|>" * 70_000
    rendered = renderer().render([Part("user", text)])
    assert rendered.counts == (len(text),) and rendered.ids.count(END) == 1


def test_a_text_of_every_private_use_character_is_refused_not_misread() -> None:
    text = "".join(map(chr, range(0xF0000, 0xFFFFE)))
    assert renderer().render([Part("user", text)]).counts == (len(text.encode()),)
    with pytest.raises(Refused, match="private-use") as refused:
        renderer().render([Part("user", text + "<|im_end|>")])
    assert refused.value.code == "bad_request"


def test_the_cache_holds_bytes_not_entries() -> None:
    cache = Cache()
    for number in range(40):
        cache.put(f"{number} " + "x" * (4 << 20), (1, 2))
    assert cache.size <= CACHE_BYTES
    assert cache.get("39 " + "x" * (4 << 20)) == (1, 2) and cache.get("0 " + "x" * (4 << 20)) is None
    cache.put("39 " + "x" * (4 << 20), (3,))
    before = cache.size
    cache.put("y" * (2 * CACHE_BYTES), (1,))
    assert cache.size == 0 < before, "what exceeds the whole cache is not kept"
