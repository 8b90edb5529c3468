"""The pure parts of remote members: addresses, event streams, the style of JSON, turns of clients, whole text."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caldrix.engine.jobs import Item, Job
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Json, Lark, Regex
from caldrix.remote.address import is_remote, parse_address
from caldrix.remote.events import Event, Events, MalformedStream
from caldrix.remote.fairness import FairQueue
from caldrix.remote.grammar import byte_compiler, guidance_text, keeps
from caldrix.remote.jsontext import JsonStyle, fault, restyled, without_fence
from caldrix.remote.output import WholeText


@pytest.mark.parametrize(
    ("reference", "root", "model", "notes"),
    [
        ("openai:http://127.0.0.1:8080/v1#m", "http://127.0.0.1:8080", "m", 0),
        ("openai:http://localhost:8080#org/m", "http://localhost:8080", "org/m", 0),
        ("openai:http://[::1]:8080/v1/#m", "http://[::1]:8080", "m", 0),
        ("openai:https://host.example/prefix/v1#m:tag", "https://host.example/prefix", "m:tag", 1),
        ("openai:http://10.0.0.5:8000/v1", "http://10.0.0.5:8000", "", 1),
    ],
)
def test_an_address_is_read(reference: str, root: str, model: str, notes: int) -> None:
    address = parse_address(reference)
    assert (address.root, address.base, address.model) == (root, f"{root}/v1", model)
    assert len(address.notes()) == notes
    assert is_remote(reference)


def test_unencrypted_code_to_another_machine_is_said() -> None:
    assert "unencrypted" in parse_address("openai:http://10.0.0.5/v1#m").notes()[0]
    assert "unencrypted" not in parse_address("openai:https://10.0.0.5/v1#m").notes()[0]


@pytest.mark.parametrize(
    "reference",
    [
        "openai:#m",
        "openai:127.0.0.1:8080#m",
        "openai:ftp://host/v1#m",
        "openai:http://host:port/v1#m",
        "openai:http://host/v1?key=secret#m",
        "openai:http://me:secret@host/v1#m",
    ],
)
def test_what_is_no_address_is_refused_without_a_secret(reference: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_address(reference)
    assert refused.value.code == "bad_request"
    assert "me:secret" not in refused.value.message


def _events(pieces: list[bytes]) -> list[Event]:
    events = Events()
    return [event for piece in pieces for event in events.feed(piece)]


STREAM = b': ping\n\nevent: x\ndata: {"a": "\xc3\xa9"}\r\n\r\ndata:{"b":2}\n\ndata: [DONE]\n\n'


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_events_do_not_depend_on_how_bytes_are_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(places)]
    assert _events(pieces) == [{"a": "é"}, {"b": 2}, {}]


@pytest.mark.parametrize(
    "line", [b"data: {broken\n", b"data: [1]\n", b"<html>\n", b"data\n", b"data: " + b"[" * 9999 + b"\n"]
)
def test_what_is_no_event_is_quoted(line: bytes) -> None:
    with pytest.raises(MalformedStream):
        _events([line])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(VALUES, st.sampled_from([None, 0, 2]), st.booleans(), st.integers(1, 5))
def test_any_style_becomes_ours_in_any_pieces(value: object, indent: int | None, ascii_only: bool, size: int) -> None:
    theirs = "\n " + json.dumps(value, indent=indent, ensure_ascii=ascii_only) + " \n"
    ours = json.dumps(value, ensure_ascii=ascii_only)
    style = JsonStyle()
    assert restyled(theirs) == ours
    assert "".join(style.feed(theirs[at : at + size]) for at in range(0, len(theirs), size)) == ours


@pytest.mark.parametrize("text", ['{"a":1}', '```json\n{"a":1}\n```', ' ```\n{"a":1}\n``` \n'])
def test_a_fence_around_the_whole_is_taken_off(text: str) -> None:
    assert without_fence(text).strip() == '{"a":1}'


@pytest.mark.parametrize(
    ("text", "schema", "part"),
    [
        ('{"a": 1}', {"required": ["a"]}, None),
        ('{"a": 1', True, "not JSON"),
        ('{"a": "x"}', {"properties": {"a": {"type": "integer"}}}, "$.a"),
        ("1", False, "False schema"),
        ('"x"', {"pattern": "\\p{L}"}, None),
        ("1", {"$ref": "https://host.example/schema"}, "cannot be followed"),
        ("[" * 100_000, True, "nested too deeply"),
    ],
)
def test_why_a_text_is_no_value_of_a_schema(text: str, schema: dict[str, object] | bool, part: str | None) -> None:
    found = fault(text, schema)
    assert found is None if part is None else part in str(found)


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        (Regex(kind="Regex", pattern="a/[0-9]+"), "a/12", "a/12x"),
        (Lark(kind="Lark", grammar='start: "x" | "yes"'), "yes", "ye"),
    ],
)
def test_an_output_is_checked_over_its_bytes(constraint: Regex | Lark, good: str, bad: str) -> None:
    compiler = byte_compiler()
    assert keeps(compiler.matcher(constraint), good)
    assert not keeps(compiler.matcher(constraint), bad)


@pytest.mark.parametrize("schema", [True, {"type": "object", "properties": {"a/b": {"enum": ["\n/"]}}}])
def test_the_text_for_a_server_compiles(schema: dict[str, object] | bool) -> None:
    text = guidance_text(Json(kind="Json", schema_=schema))
    byte_compiler().matcher(Lark(kind="Lark", grammar=text))  # raises where it does not
    assert '"item_separator": ", "' in text


def _job(client: str) -> Job:
    def ignore(item: Item) -> None:
        """Nobody listens."""

    return Job((1,), 1, ignore, client=client)


def test_clients_take_turns() -> None:
    queue = FairQueue()
    jobs = {name: _job(name[0]) for name in ("a1", "a2", "a3", "b1", "c1", "b2")}
    for job in jobs.values():
        queue.add(job)
    names = {id(job): name for name, job in jobs.items()}
    assert [names[id(job)] for job in queue.jobs()] == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert queue.place(jobs["b2"]) == 5
    assert queue.take() is jobs["a1"]
    late = _job("d")
    queue.add(late)
    assert queue.place(late) == 3, "who comes late still comes before the second of others"
    assert queue.remove(jobs["a2"])
    assert not queue.remove(jobs["a2"])
    assert queue.place(jobs["a2"]) is None


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_nobody_is_forgotten_and_each_client_keeps_its_order(clients: list[str]) -> None:
    queue = FairQueue()
    jobs = [_job(client) for client in clients]
    for job in jobs:
        queue.add(job)
    taken: list[Job] = []
    while (job := queue.take()) is not None:
        taken.append(job)
    for client in "abc":
        assert [job for job in taken if job.client == client] == [job for job in jobs if job.client == client]
    assert len(taken) == len(jobs)


@given(st.text(), st.integers(1, 3))
def test_a_pair_cut_in_two_is_joined(text: str, size: int) -> None:
    units = text.encode("utf-16-le")
    pieces = [units[at : at + 2 * size].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2 * size)]
    whole = WholeText()
    assert "".join(whole.feed(piece) for piece in pieces) + whole.feed("", last=True) == text


def test_half_a_pair_becomes_a_replacement_character() -> None:
    whole = WholeText()
    assert whole.feed("a\ud83d") + whole.feed("b\ude00") + whole.feed("", last=True) == "a�b�"
