"""Broken and odd model files through the real loader: each a named outcome in a bounded time; this process lives."""

from __future__ import annotations

import queue
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from caldrix.engine import probe as probing
from caldrix.engine.api import ServingFlags
from caldrix.engine.jobs import Failed, Finished, Item, Job, Part
from caldrix.engine.member import LoadedMember, load_member
from caldrix.protocol.errors import Refused
from tests.doubles.tiny_models import CHATML, write_tiny

FLAGS = ServingFlags(window=512, context_budget=1 << 20, threads=1)
TENSOR = b"blk.0.attn_q.weight"
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML
IN_TURN = (
    "{% for m in messages %}{% if (m.role == 'assistant') != (loop.index0 % 2 == 1) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}" + CHATML
)
SYSTEM_THEN_TURNS = (
    "{% for m in messages %}{% if not loop.first and m.role == loop.previtem.role %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}" + CHATML
)
TALK = [Part("system", "Be brief."), Part("user", "One."), Part("user", "Two."), Part("assistant", "Three.")]


@pytest.fixture(autouse=True)
def fresh_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny(tmp_path_factory.mktemp("good") / "m.gguf", "attention").read_bytes()


def load(path: Path) -> LoadedMember:
    return load_member(str(path), FLAGS, lambda phase, done, total: None, 0)


def refusal(path: Path) -> str:
    with pytest.raises(Refused) as refused:
        load(path)
    said = refused.value.message
    assert refused.value.code == "model_refused" and str(path) in said
    assert "Traceback" not in said and "\n" not in said and "see the pool's log" not in said
    return said


def overwritten(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: b"GGUF" + random.Random(1).randbytes(4000), "it is of version"),
        (lambda data: overwritten(data, 60, b"\xff" * 8), "its header alone needs more than"),
        (
            lambda data: data.replace(b"llama.block_count", b"llama.blocc_count"),
            "key not found in model: llama.block_count",
        ),
        (lambda data: overwritten(data, data.index(TENSOR), b"blk.0.attn_z"), "tensor 'blk.0.attn_q.weight' not found"),
        (lambda data: overwritten(data, data.index(TENSOR) + 19, b"\x63"), "99 dimensions"),
        (lambda data: overwritten(data, data.index(TENSOR) + 23, b"\x41"), "has offset"),
        (lambda data: overwritten(data, data.index(TENSOR) + 39, b"\x63"), "has invalid ggml type 99"),
        (lambda data: overwritten(data, data.index(TENSOR) + 43, b"\x07"), "has offset"),
    ],
    ids=["random", "length", "key", "tensor", "dimensions", "size", "type", "offset"],
)
def test_a_corrupt_file_is_refused(good: bytes, damage: Callable[[bytes], bytes], said: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(damage(good))
    assert said in refusal(path)


@pytest.mark.parametrize("length", [0, 3, 4, 20, 3000, 0.5, 0.99, -1])
def test_a_truncated_file_is_refused(good: bytes, length: float, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(good[: int(length * len(good)) if isinstance(length, float) else length])
    said = refusal(path)
    assert "fetch it again" in said or "is not a GGUF file" in said


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    assert "unknown model architecture: 'mindreader'" in refusal(
        write_tiny(tmp_path / "m.gguf", "attention", architecture="mindreader")
    )


def test_a_model_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    assert "tokenizer.ggml.model" in refusal(write_tiny(tmp_path / "m.gguf", "attention", tokenizer=False))


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf", "attention", not_a_number="blk.1.ffn_down.weight")
    assert "logits are no numbers" in refusal(path)


def test_weights_that_are_no_numbers_fail_a_generation_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a kernel breaks only later: the member fails that generation and lives."""
    monkeypatch.setattr("caldrix.engine.member.probe", lambda path, threads: probing.Verdict(repack=True))
    member = load(write_tiny(tmp_path / "m.gguf", "attention", not_a_number="blk.1.ffn_down.weight"))
    try:
        for _ in range(2):
            last = generate(member)
            assert isinstance(last, Failed) and last.code == "engine_failed" and "no numbers" in last.message
    finally:
        member.close()


def generate(member: LoadedMember) -> Item:
    arrived: queue.Queue[Item] = queue.Queue()
    member.submit(Job(member.render(TALK).ids, 4, arrived.put))
    while True:
        item = arrived.get(timeout=60)
        if isinstance(item, Failed | Finished):
            return item


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (ENDLESS, "did not render the model's chat template within 2 s"),
        ("{{ 'x' * 10 ** 12 }}", "chat template takes more than 1 GiB"),
    ],
    ids=["endless", "huge"],
)
def test_a_template_without_bounds_is_refused(
    template: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "TEMPLATE_SECONDS", 2)
    monkeypatch.setattr(sys, "executable", hurried_python(tmp_path / "python"))
    assert said in refusal(write_tiny(tmp_path / "m.gguf", "attention", template=template))


def hurried_python(program: Path) -> str:
    """An interpreter whose precheck allows a template 2 seconds instead of 20."""
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom caldrix.engine import probe\n"
        "probe.TEMPLATE_SECONDS = 2\nsys.exit(probe._child(*sys.argv[3:]))\n"
    )
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("template", "source", "system", "alternates", "note"),
    [
        (CHATML, "gguf", "native", False, None),
        (None, "plain", "native", False, "has no chat template"),
        ("", "plain", "native", False, "has no chat template"),
        ("{% for", "plain", "native", False, "cannot be read"),
        ("{{ raise_exception('never') }}", "plain", "native", False, "drops or refuses turns"),
        (NO_SYSTEM, "gguf", "folded", True, None),
        (IN_TURN, "gguf", "folded", True, None),
        (SYSTEM_THEN_TURNS, "gguf", "native", True, None),
    ],
    ids=["usual", "none", "empty", "broken", "refuses", "no-system", "in-turn", "no-neighbours"],
)
def test_a_template_is_served_and_told_how(
    template: str | None, source: str, system: str, alternates: bool, note: str | None, tmp_path: Path
) -> None:
    member = load(write_tiny(tmp_path / "m.gguf", "attention", template=template))
    try:
        status = member.status("m")
        assert status.template is not None
        told = (status.template.source, status.template.system, status.template.alternates)
        assert told == (source, system, alternates)
        assert [n for n in status.notes if "template" in n] == ([n for n in status.notes if note in n] if note else [])
        assert not note or any(note in n for n in status.notes)
        assert isinstance(generate(member), Finished)
    finally:
        member.close()
