"""`aerix`: words to one command, its end to an exit code. Never a traceback."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from aerix_cli.headless import run_print
from aerix_cli.options import Command, PoolStatus, Print, UsageError, parse
from aerix_cli.pool import pool_status
from aerix_cli.rpc import INVALID_PARAMS, RpcError, ServerGone
from aerix_cli.terminal import ReaderGone, open_missing_streams, write_err
from aerix_cli.texts import one_line
from aerix_server.protocol.outcomes import EXIT_CODES, EXIT_READER_GONE, EXIT_USAGE

EXIT_FAILED: Final = 1


def main() -> NoReturn:
    open_missing_streams()
    code = run(sys.argv[1:])
    # Not sys.exit: a thread may still wait for a reader of stdout that never reads.
    os._exit(code)


def run(words: Sequence[str]) -> int:
    """The exit code."""
    try:
        command = _parse(words)
        if command is None:
            return 0
        if isinstance(command, Print):
            return asyncio.run(run_print(command, read_prompt(command.prompt)))
        return asyncio.run(_other(command))
    except UsageError as error:
        write_err(f"{error.usage}aerix: {one_line(str(error), 2000)}\n")
        return EXIT_USAGE
    except RpcError as error:
        write_err("".join(f"aerix: {one_line(line, 2000)}\n" for line in error.sentence.split("\n")))
        return EXIT_USAGE if error.code == INVALID_PARAMS else EXIT_FAILED
    except ServerGone as error:
        write_err(f"aerix: {one_line(str(error), 2000)}\n")
        return EXIT_FAILED
    except (ReaderGone, BrokenPipeError):
        return EXIT_READER_GONE
    except KeyboardInterrupt:
        return EXIT_CODES["cancelled"]
    except OSError as error:
        write_err(f"aerix: {one_line(str(error), 2000)}\n")
        return EXIT_FAILED


def _parse(words: Sequence[str]) -> Command | None:
    """None after --help and --version. Raises UsageError."""
    try:
        return parse(words)
    except SystemExit:
        if sys.stdout is not None:
            sys.stdout.flush()
        return None


def read_prompt(given: str | None) -> str:
    """The prompt, from stdin where that is asked for. Raises UsageError for an empty one."""
    if given is None and os.isatty(0):
        raise UsageError('a prompt is missing: aerix -p "what to do", or pipe it in')
    text = _stdin() if given in (None, "-") else str(given)
    if not text.strip():
        raise UsageError("the prompt is empty")
    return text


def _stdin() -> str:
    data = b""
    while more := os.read(0, 1 << 16):
        data += more
    return data.decode("utf-8-sig", "replace").removesuffix("\n")


async def _other(command: Command) -> int:
    assert isinstance(command, PoolStatus)
    return await pool_status(command.json)


if __name__ == "__main__":
    main()
