"""Which files of a repository are meant by a quantisation or a file's name."""

from __future__ import annotations

import pytest

from caldrix.models.choice import choose_file, choose_quantisation, split_files
from caldrix.protocol.errors import Refused

SPLIT = ("big-q6_k-00001-of-00003.gguf", "big-q6_k-00002-of-00003.gguf", "big-q6_k-00003-of-00003.gguf")
NAMES = [
    "README.md",
    "mmproj-model-Q8_0.gguf",
    "imatrix_unsloth.gguf",
    "Model-Q4_K_M.gguf",
    "Model-Q4_K_S.gguf",
    "Model-IQ4_XS.gguf",
    "UD-Q2_K_XL/Model-UD-Q2_K_XL-00001-of-00002.gguf",
    "UD-Q2_K_XL/Model-UD-Q2_K_XL-00002-of-00002.gguf",
    "Model-Q8_0.gguf",
    "both-q5_k_m.gguf",
    "both-q5_k_m-00001-of-00002.gguf",
    "both-q5_k_m-00002-of-00002.gguf",
    *SPLIT,
]


@pytest.mark.parametrize(
    ("quantisation", "chosen"),
    [
        ("Q4_K_M", ("Model-Q4_K_M.gguf",)),
        ("q4_k_s", ("Model-Q4_K_S.gguf",)),
        ("iq4_xs", ("Model-IQ4_XS.gguf",)),
        ("Q8_0", ("Model-Q8_0.gguf",)),  # not the projector
        ("UD-Q2_K_XL", (NAMES[6], NAMES[7])),
        ("q2_k_xl", (NAMES[6], NAMES[7])),
        ("Q6_K", SPLIT),
        ("Q5_K_M", ("both-q5_k_m.gguf",)),  # whole and split: the whole one
    ],
)
def test_the_one_file_of_a_quantisation(quantisation: str, chosen: tuple[str, ...]) -> None:
    assert choose_quantisation("hf:o/r", NAMES, quantisation) == chosen


@pytest.mark.parametrize(
    ("names", "quantisation", "said"),
    [
        (NAMES, "Q4_K", "no file of quantisation Q4_K; there are: Model-IQ4_XS.gguf, Model-Q4_K_M.gguf"),
        (NAMES, "Q4_XS", "no file of quantisation Q4_XS"),
        (NAMES, None, "7 models: name the file, as in hf:o/r/FILE; there are: "),
        (["a-Q8_0.gguf", "b-Q8_0.gguf"], "q8_0", "2 models of quantisation q8_0: name the file"),
        (["README.md", "model.safetensors"], "Q8_0", "it holds no GGUF model"),
        (SPLIT[1:], "Q6_K", f"lacks 1 of the 3 files of this model: {SPLIT[0]}"),
        ([f"m{n}-Q{n}_0.gguf" for n in range(100)], "F16", "and 76 more"),
    ],
)
def test_several_or_none_say_what_there_is(names: list[str], quantisation: str | None, said: str) -> None:
    with pytest.raises(Refused) as refused:
        choose_quantisation("hf:o/r", names, quantisation)
    assert refused.value.code == "model_not_found"
    assert said in refused.value.message


def test_a_file_by_its_name() -> None:
    assert choose_file("hf:o/r", NAMES, "Model-Q8_0.gguf") == ("Model-Q8_0.gguf",)
    assert choose_file("hf:o/r", NAMES, SPLIT[1]) == SPLIT
    with pytest.raises(Refused, match=r"hf:o/r has no file Model-Q3_K\.gguf; there are: "):
        choose_file("hf:o/r", NAMES, "Model-Q3_K.gguf")
    with pytest.raises(Refused, match="lacks 1 of the 3 files"):
        choose_file("hf:o/r", SPLIT[:2], SPLIT[0])


def test_the_only_model_needs_no_quantisation() -> None:
    assert choose_quantisation("hf:o/r", ["x.gguf", "mmproj-x.gguf"], None) == ("x.gguf",)


def test_the_files_of_a_split_model() -> None:
    assert split_files(SPLIT[2]) == SPLIT
    assert split_files("x-00001-of-00002.bin") == ("x-00001-of-00002.bin",)
