"""aider as an agent of the trial: the whole-file format, its files given, the same model behind a llama-server."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from benchmarks.pool.llama_server import find_build, server_process
from benchmarks.tasks.agent import Agent, Attempt, Conditions
from benchmarks.tasks.aider_log import answer, figures, trace
from benchmarks.tasks.command import Ended, run
from benchmarks.tasks.errors import TrialFailed
from benchmarks.tasks.place import Place, environment
from benchmarks.tasks.task import Task
from benchmarks.tasks.tree import endings

MODEL: Final = "openai/trial"
HISTORY: Final = "llm-history.txt"
EVENTS: Final = "events.jsonl"
FLAGS: Final = (
    "--edit-format=whole",
    "--yes-always",
    "--no-auto-commits",
    "--no-dirty-commits",
    "--no-gitignore",
    "--no-stream",
    "--no-pretty",
    "--no-fancy-input",
    "--no-check-update",
    "--no-show-release-notes",
    "--no-show-model-warnings",
    "--no-suggest-shell-commands",
    "--no-detect-urls",
    "--no-analytics",
)


@contextlib.asynccontextmanager
async def aider(place: Place, conditions: Conditions, program: Path, server: Path | None) -> AsyncIterator[Agent]:
    """The agent, with a server that ends on leaving.

    `program` is aider's command; `server` a llama-server, by default the one on PATH or in the package xllamacpp.
    Raises NotMeasured when the server does not start.
    """
    build = await find_build(server)
    threads = conditions.threads or len(os.sched_getaffinity(0))
    folder = place.root / "llama-server"
    async with server_process(build, conditions.model, folder, threads, conditions.window, 1) as running:

        async def attempt(task: Task, seed: int) -> Attempt:
            settings = _write_settings(place.home, conditions, seed)
            words = [str(program), *_words(place.home, settings, str(running.http.base_url)), *_files(task)]
            env = environment(place) | {"OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
            try:
                ended = await run([*words, "--message", task.request], place.repo(task), env, conditions.limit_s)
            except OSError as error:
                raise TrialFailed(f"{program} cannot be started: {error.strerror}") from error
            return _attempt(ended, place.home)

        yield attempt


async def version(program: Path) -> str:
    """What aider says of itself. Raises TrialFailed when it cannot be started."""
    try:
        ended = await run([str(program), "--version"], Path.cwd(), os.environ, 120.0)
    except OSError as error:
        raise TrialFailed(f"{program} cannot be started: {error.strerror}") from error
    return ended.stdout.strip() or "aider of a version it does not tell"


def _words(home: Path, settings: tuple[Path, Path], url: str) -> list[str]:
    return [
        *FLAGS,
        f"--model={MODEL}",
        f"--openai-api-base={url.rstrip('/')}/v1",
        f"--model-settings-file={settings[0]}",
        f"--model-metadata-file={settings[1]}",
        f"--llm-history-file={home / HISTORY}",
        f"--analytics-log={home / EVENTS}",
        f"--chat-history-file={home / 'chat-history.md'}",
        f"--input-history-file={home / 'input-history'}",
    ]


def _files(task: Task) -> list[str]:
    """The files it is handed; where they end their lines by CRLF, it is told so, as its user would."""
    crlf = any(endings((task.repo / name).read_bytes()) == "CRLF" for name in task.files)
    return ["--line-endings", "crlf" if crlf else "lf", *(f"--file={name}" for name in task.files)]


def _write_settings(home: Path, conditions: Conditions, seed: int) -> tuple[Path, Path]:
    """Its two files about a model, in JSON, which is YAML too; gives their paths."""
    sampling = {"temperature": conditions.temperature, "seed": seed, "max_tokens": conditions.max_new_tokens}
    settings = {
        "name": MODEL,
        "edit_format": "whole",
        "weak_model_name": MODEL,
        "use_temperature": conditions.temperature,
        "extra_params": sampling,
    }
    limits = {
        "max_tokens": conditions.max_new_tokens,
        "max_input_tokens": conditions.window,
        "max_output_tokens": conditions.max_new_tokens,
        "input_cost_per_token": 0,
        "output_cost_per_token": 0,
        "litellm_provider": "openai",
        "mode": "chat",
    }
    paths = home / "model-settings.yml", home / "model-metadata.json"
    for path, value in zip(paths, ([settings], {MODEL: limits}), strict=True):
        path.write_text(json.dumps(value), "utf-8")
    return paths


def _attempt(ended: Ended, home: Path) -> Attempt:
    history, events = (_text(home / name) for name in (HISTORY, EVENTS))
    outcome = "timeout" if not ended.in_time else "final" if ended.code == 0 else "failed"
    return Attempt(
        outcome=outcome,
        reason="" if ended.code == 0 else f"exit code {ended.code}",
        answer=answer(history),
        figures=figures(events, ended.stdout),
        seconds=ended.seconds,
        trace=tuple(trace(history, ended.stdout)),
    )


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""
