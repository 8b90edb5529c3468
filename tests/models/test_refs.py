"""What a model reference means; those that lead nowhere are refused with a sentence, whatever they hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from caldrix.models.catalogue import CATALOGUE
from caldrix.models.refs import AtPath, OnHub, Reference, parse, resolve
from caldrix.protocol.errors import Refused
from tests.doubles.model_files import write_gguf


@pytest.mark.parametrize(
    "reference",
    ["", "nothing-known", "~nobody-of-this-name/x.gguf", "/no/such.gguf", "a\0b/x.gguf", "/", "/" + "x" * 4000],
)
def test_no_model_is_found(reference: str) -> None:
    with pytest.raises(Refused) as refused:
        resolve(reference)
    assert refused.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("reference", "parsed"),
    [
        ("qwen2.5-coder-7b", CATALOGUE["qwen2.5-coder-7b"]),
        ("hf:org/Repo", OnHub("org/Repo")),
        ("hf:org/Repo:Q4_K_M", OnHub("org/Repo", quantisation="Q4_K_M")),
        ("hf:org/Repo/x.gguf", OnHub("org/Repo", "x.gguf")),
        ("hf:org/Repo/UD-Q4/x-00001-of-00002.gguf", OnHub("org/Repo", "UD-Q4/x-00001-of-00002.gguf")),
        ("./x.gguf", AtPath(Path("x.gguf"))),
        ("x.gguf", AtPath(Path("x.gguf"))),
        ("models/x", AtPath(Path("models/x"))),
        ("~/x.gguf", AtPath(Path.home() / "x.gguf")),
    ],
)
def test_what_a_reference_means(reference: str, parsed: Reference) -> None:
    assert parse(reference) == parsed


@pytest.mark.parametrize(
    "reference",
    [
        *("hf:", "hf:org", "hf:org/", "hf:/Repo:Q4", "hf:org/Repo:", "hf:org/Repo/", "hf:org/Repo:Q4/x.gguf"),
        *("hf:../Repo:Q4", "hf:org/../x.gguf", "hf:org/Repo/../../x.gguf", "hf:org/Repo//x.gguf", "hf:org/Repo/x.bin"),
        *("hf:org/Repo/a\0b.gguf", "openai:http://localhost:8000/v1#m", "QWEN2.5-CODER-7B"),
    ],
)
def test_references_that_mean_nothing(reference: str) -> None:
    with pytest.raises(Refused) as refused:
        parse(reference)
    assert refused.value.code == "model_not_found"


def test_a_catalogue_model_is_found_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(Refused, match=r"fetch it with `caldrix pull qwen2\.5-coder-7b`"):
        resolve("qwen2.5-coder-7b")
    by_hub_name = tmp_path / "caldrix/models/hf/Qwen/Qwen2.5-Coder-7B-Instruct-GGUF"
    by_hub_name.mkdir(parents=True)
    file = by_hub_name / "qwen2.5-coder-7b-instruct-q4_k_m.gguf"
    write_gguf(file)
    assert resolve("qwen2.5-coder-7b") == resolve("hf:Qwen/Qwen2.5-Coder-7B-Instruct-GGUF:q4_k_m") == file.resolve()
    file.write_bytes(file.read_bytes()[:-500])
    with pytest.raises(Refused, match="is cut off") as refused:
        resolve("qwen2.5-coder-7b")
    assert refused.value.code == "model_refused"
