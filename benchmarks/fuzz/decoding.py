"""Coverage-guided fuzzing of the framer, the decoders and the parser in this process, by atheris (libFuzzer).

A module of its own, to be run as one: what is instrumented must not have been imported before.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from random import Random

try:
    import atheris  # type: ignore[import-untyped]
except ImportError:
    sys.exit("atheris is not installed: pip install atheris (it has wheels for CPython 3.11 to 3.13 on Linux)")

with atheris.instrument_imports(include=["caldrix", "cbor2", "json"]):
    from benchmarks.fuzz.streams import conversation
    from caldrix.daemon.parsing import parse, request_id
    from caldrix.protocol.errors import BadFrame, Refused
    from caldrix.protocol.frames import Framer, decode, detect, encode

MAX_BYTES = 4096


def check(data: bytes) -> None:
    """A stream cut in two gives frames or BadFrame, a frame a map or BadFrame, a map a request or Refused; and what
    was decoded can be encoded and decoded again."""
    if not data:
        return
    framer, cut, stream = Framer(), data[0], data[1:]
    with contextlib.suppress(BadFrame):
        for piece in (stream[:cut], stream[cut:]):
            framer.feed(piece)
            while (body := framer.next_body()) is not None:
                _check_body(body)
    with contextlib.suppress(BadFrame):
        _check_body(stream)


def _check_body(body: bytes) -> None:
    fmt = detect(body)
    value = decode(body, fmt)
    request_id(value)
    with contextlib.suppress(Refused):
        parse(value)
    once = encode(value, fmt)[4:]
    again = encode(decode(once, fmt), fmt)[4:]
    if once != again:
        raise AssertionError(f"{body!r} is {once!r} and then {again!r}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz.decoding")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--save", type=Path, required=True, help="an existing folder, for inputs that do harm")
    parser.add_argument("--corpus", type=Path, required=True, help="an existing folder, for inputs that lead on")
    given = parser.parse_args()
    _seed(given.corpus)
    seconds = max(1, round(given.minutes * 60))
    options = [f"-max_total_time={seconds}", f"-max_len={MAX_BYTES}", f"-artifact_prefix={given.save}/", "-timeout=10"]
    atheris.Setup([sys.argv[0], str(given.corpus), *options, "-rss_limit_mb=2048", "-print_final_stats=1"], check)
    atheris.Fuzz()


def _seed(corpus: Path) -> None:
    """Valid streams and bodies to begin with."""
    random = Random(1)  # noqa: S311
    for number in range(20):
        for fmt in ("cbor", "json"):
            stream = conversation(random, "a", fmt)
            (corpus / f"{fmt}-{number}").write_bytes(b"\x40" + stream)
            (corpus / f"{fmt}-{number}-body").write_bytes(b"\x00" + stream[4 : 4 + int.from_bytes(stream[:4], "big")])


if __name__ == "__main__":
    main()
