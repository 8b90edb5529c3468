"""Turns of a real model, counted: how many had to be asked again, and how much sooner a warm request starts.

    ./run python benchmarks/real_turns.py [--turns 50] [--temperature 0.8] [--model smollm2-instruct]

Runs `aerix -p` with a pool, a home and a small repository of its own, one seed a request, and reads the session logs.
Figures are ratios within this run; absolute times depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TURNS_A_REQUEST = 5


def main() -> int:
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="ax", dir="/tmp") as folder:  # short: a socket path has a limit
        root = Path(folder)
        repo, env = _repository(root / "repo"), _environment(root, given)
        try:
            turns = _collect(given, repo, env, root)
        finally:
            subprocess.run(
                [sys.executable, "-m", "caldrix", "pool", "stop", "--socket", env["AERIX_POOL_SOCKET"]],
                env=env,
                check=False,
            )
    return _report(turns, given.turns)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--model", default="smollm2-instruct")
    parser.add_argument("--max-new-tokens", type=int, default=1024)
    return parser.parse_args()


def _repository(path: Path) -> Path:
    path.mkdir()
    (path / "app.py").write_text("def add(a, b):\n    return a - b\n")
    git = ["git", "-c", "user.name=b", "-c", "user.email=b@example.org", "-C", str(path)]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        subprocess.run([*git, *words], check=True)
    return path


def _environment(root: Path, given: argparse.Namespace) -> dict[str, str]:
    folders = {f"XDG_{name}_HOME": str(root / name.lower()) for name in ("CONFIG", "DATA", "STATE")}
    settings = {
        "AERIX_MAIN_MODEL": given.model,
        "AERIX_POOL_SOCKET": str(root / "p.sock"),
        "AERIX_POOL_CALDRIX": f"{sys.executable} -m caldrix",
        "AERIX_CONTEXT_MAX_NEW_TOKENS": str(given.max_new_tokens),
        "AERIX_SAMPLING_TEMPERATURE": str(given.temperature),
    }
    return {**os.environ, **folders, **settings}


def _collect(given: argparse.Namespace, repo: Path, env: dict[str, str], root: Path) -> list[dict[str, Any]]:
    """Every assistant message of as many requests as give the turns."""
    turns: list[dict[str, Any]] = []
    seed = 0
    while sum("error" not in turn for turn in turns) < given.turns:
        words = [
            "-p",
            f"Question {seed}: what does app.py do?",
            "--route",
            "answer",
            "--max-turns",
            str(TURNS_A_REQUEST),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "aerix_cli", *words, "--output-format", "json"],
            cwd=repo,
            env={**env, "AERIX_SAMPLING_SEED": str(1000 * seed)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=False,
        )
        result = json.loads(done.stdout)
        (log,) = (root / "data" / "aerix" / "sessions").glob(f"*/{result['session']}.jsonl")
        events = [json.loads(line) for line in log.read_bytes().split(b"\n") if line]
        turns += [event for event in events if event["type"] == "message" and event["role"] == "assistant"]
        seed += 1
    return turns


def _report(turns: list[dict[str, Any]], wanted: int) -> int:
    asked_again = [turn for turn in turns if "error" in turn]
    opening = [turn for turn in turns if turn["turn"] == 1 and "error" not in turn]
    waits = [turn["timing"]["prefill_ms"] for turn in opening]
    later = sorted(waits[1:])
    for turn in asked_again:
        print(f"asked again (seed {turn['seed']}): {turn['error']}: {turn['raw'][:200]!r}")
    print(f"{len(turns)} turns, {len(asked_again)} asked again, every other one a JSON object: ", end="")
    print(all(isinstance(json.loads(turn["raw"]), dict) for turn in turns if "error" not in turn))
    if later:
        median = later[len(later) // 2]
        print(f"to a first turn's first token: cold {waits[0]} ms, warm {median} ms (median of {len(later)}), ", end="")
        print(f"{waits[0] / median:.1f} times sooner")
        print("resumed at row", [(turn["recomputed_from"], turn["usage"]["prompt_tokens"]) for turn in opening])
    return int(len(asked_again) > 0 or len(turns) < wanted)


if __name__ == "__main__":
    sys.exit(main())
