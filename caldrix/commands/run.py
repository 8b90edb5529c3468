"""`caldrix run`: one answer, or a chat, from a model loaded for it alone or from the pool that `--socket` names.

Stdout holds answers and nothing else. Everything beside them goes to stderr, and bars and colours only to a terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from caldrix.client.client import GenerationFrame
from caldrix.commands.answer import Answer, Conversation, Question
from caldrix.commands.bars import load_progress
from caldrix.commands.chat import AnswerView, Chat
from caldrix.commands.exits import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, Stop, say
from caldrix.commands.served import served
from caldrix.commands.stats import stats_line
from caldrix.engine.api import Loader
from caldrix.protocol.errors import CaldrixError
from caldrix.protocol.messages import Delta, Done, Json


def run(given: argparse.Namespace, load: Loader) -> int:
    """Gives the exit code. Raises Stop; KeyboardInterrupt when interrupted."""
    question = Question(given.max_new_tokens, _constraint(given.json_schema))
    prompt = _prompt(given.prompt)
    if prompt is not None and not prompt.strip():
        raise Stop(EXIT_USAGE, "the prompt is empty")
    try:
        asyncio.run(_run(given, load, question, prompt))
    except CaldrixError as error:
        raise Stop(EXIT_FAILED, str(error)) from error
    return EXIT_DONE


def _prompt(given: str | None) -> str | None:
    """The prompt; None stands for a chat, which needs a terminal at both ends. Else stdin holds what was not given."""
    if given == "-" or (given is None and not (sys.stdin.isatty() and sys.stdout.isatty())):
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    return given


def _constraint(path: Path | None) -> Json | None:
    if path is None:
        return None
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Stop(EXIT_USAGE, f"--json-schema {path}: {error}") from error
    if not isinstance(schema, dict | bool):
        raise Stop(EXIT_USAGE, f"--json-schema {path}: a schema is an object or a boolean")
    return Json(kind="Json", schema_=schema)


async def _run(given: argparse.Namespace, load: Loader, question: Question, prompt: str | None) -> None:
    with load_progress(given.reference) as report:
        async with served(given, load, report) as (client, member):
            report.stop()
            conversation = Conversation(client, member.member, question)
            if prompt is None:
                await Chat(conversation, member, stats=given.stats).run()
            else:
                await _answer_once(conversation, question, prompt, stats=given.stats)
            await conversation.restart(forget=True)


async def _answer_once(conversation: Conversation, question: Question, prompt: str, *, stats: bool) -> None:
    """Raises Stop when a JSON answer was cut, CaldrixError."""
    view = AnswerView() if sys.stdout.isatty() else None
    try:
        answer = await conversation.ask(prompt, view.show if view else _write)
    finally:
        if view:
            view.close()
    if stats:
        say(stats_line(answer.done, answer.first_ms))
    if answer.done.finish == "length":
        _tell_cut(answer, question)


def _write(frame: GenerationFrame) -> None:
    match frame:
        case Delta(text=text):
            sys.stdout.write(text)
            sys.stdout.flush()
        case Done():
            sys.stdout.write("\n")


def _tell_cut(answer: Answer, question: Question) -> None:
    sentence = f"the answer was cut at {answer.done.usage.completion_tokens} tokens"
    if question.constraint:
        raise Stop(EXIT_FAILED, f"{sentence}, before its JSON ended; give it more with --max-new-tokens or --window")
    say(sentence)
