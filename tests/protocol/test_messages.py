"""Messages: every type survives the wire in both formats, and what is loose or wrong is refused."""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from caldrix.protocol import messages
from caldrix.protocol.frames import Format, decode, encode
from caldrix.protocol.messages import (
    Generate,
    Member,
    Message,
    QueueInfo,
    Rates,
    Reply,
    Request,
    StoreInfo,
    TemplateInfo,
    parse_reply,
    parse_request,
    payload,
)
from caldrix.protocol.text import encodable, is_encodable

REQUESTS: tuple[type[Message], ...] = get_args(get_args(Request)[0])
REPLIES: tuple[type[Message], ...] = get_args(get_args(Reply)[0])
FORMATS: tuple[Format, ...] = ("cbor", "json")

TEXT = st.text('aé\n"\\{日😀', min_size=1, max_size=6)
SCALARS = {
    int: st.integers(1, 20),
    float: st.sampled_from([0.125, 0.5, 1.0]),
    str: TEXT,
    bool: st.booleans(),
    type(None): st.none(),
}


@cache
def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type, small enough to keep every bound of the messages."""
    if annotation in SCALARS:
        return SCALARS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = {name: values(field.annotation) for name, field in annotation.model_fields.items()}
        return st.fixed_dictionaries(fields).map(lambda given: annotation(**given))
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return values(arguments[0])
    if get_origin(annotation) is Literal:
        return st.sampled_from(arguments)
    if get_origin(annotation) is list:
        return st.lists(values(arguments[0]), max_size=2)
    if get_origin(annotation) is dict:
        return st.dictionaries(TEXT, SCALARS[int] | TEXT, max_size=2)
    assert get_origin(annotation) in (Union, UnionType), annotation
    return st.one_of([values(argument) for argument in arguments])


@pytest.mark.parametrize("model", REQUESTS, ids=lambda model: model.__name__)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_every_request_survives_the_wire(model: type[Message], data: st.DataObject) -> None:
    message = data.draw(values(model))
    for fmt in FORMATS:
        assert parse_request(decode(encode(payload(message), fmt)[4:], fmt)) == message


@pytest.mark.parametrize("model", REPLIES, ids=lambda model: model.__name__)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_every_reply_survives_the_wire(model: type[Message], data: st.DataObject) -> None:
    message = data.draw(values(model))
    for fmt in FORMATS:
        assert parse_reply(decode(encode(payload(message), fmt)[4:], fmt)) == message


def test_the_unions_name_each_message_of_the_specification() -> None:
    wanted = "Hello PoolStatus MemberLoad MemberUnload Generate Cancel PoolStop"
    wanted += " ContextCreate ContextEdit ContextFork ContextShow ContextDrop"
    assert {model.model_fields["type"].default for model in REQUESTS} == set(wanted.split())
    streamed = "Welcome PoolStatus MemberLoaded Ok ContextInfo Queued Progress Delta Done Error"
    assert {model.model_fields["type"].default for model in REPLIES} == set(streamed.split())


def test_a_member_that_was_never_timed_survives_the_wire() -> None:
    member = Member(
        member="m",
        model="r",
        status="ready",
        lane="cpu",
        threads=1,
        window=1,
        footprint_bytes=1,
        context_budget_bytes=0,
        constraints=["Json"],
        template=TemplateInfo(source="gguf", system="native", alternates=False, prefix_stable=True),
        queue=QueueInfo(running=0, waiting=0),
        store=StoreInfo(entries=0, bytes=0, hits=0, misses=0, evicted=0),
        rates=Rates(),
    )
    reply = messages.MemberLoaded(id=1, member=member)
    assert parse_reply(payload(reply)) == reply


def generate(**changes: Any) -> dict[str, Any]:
    return {"type": "Generate", "id": 1, "context": "c", "max_new_tokens": 1} | changes


def test_defaults_and_unknown_fields() -> None:
    request = parse_request(generate(unheard_of=[1], sampling={"temperature": 1, "other": 2}))
    assert isinstance(request, Generate)
    assert request.sampling.temperature == 1.0 and request.sampling.top_p == 1.0 and request.draft == "auto"
    assert request.constraint is None and request.append is None and request.logprobs is None


def test_the_schema_of_a_json_constraint_has_its_wire_name() -> None:
    request = parse_request(generate(constraint={"kind": "Json", "schema": {"type": "object"}}))
    assert payload(request)["constraint"] == {"kind": "Json", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    "fields",
    [
        {"id": -1},
        {"id": 2**64},
        {"id": "1"},
        {"id": True},
        {"id": 1.0},
        {"max_new_tokens": 0},
        {"max_new_tokens": "5"},
        {"logprobs": 21},
        {"draft": "maybe"},
        {"sampling": {"temperature": -1}},
        {"sampling": {"repeat_penalty": float("inf")}},
        {"sampling": {"repeat_penalty": 1e-300}},
        {"sampling": {"temperature": float("nan")}},
        {"sampling": {"top_p": 0}},
        {"sampling": {"seed": -1}},
        {"constraint": {"kind": "Nope"}},
        {"constraint": {"kind": "OneOf", "options": "a"}},
        {"constraint": {"options": ["a"]}},
        {"append": {"id": ""}},
        {"append": {"id": "x" * 257}},
    ],
)
def test_wrong_values_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        parse_request(generate(**fields))


@given(
    st.recursive(
        st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
    )
)
def test_encodable_text_is_kept_and_the_rest_escaped(value: Any) -> None:
    safe = encodable(value)
    assert is_encodable(safe)
    assert not is_encodable(value) or safe == value


def test_a_lone_surrogate_is_written_out() -> None:
    assert encodable({"a": ["x\udc80y"]}) == {"a": ["x\\udc80y"]}
    assert not is_encodable({"a": ["\udc80"]}) and not is_encodable({"\udc80": 1})
