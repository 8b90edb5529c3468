"""Writing a file so that it is the old one or the new one, whole, and still the same file to everyone else.

The new bytes go to a file beside the old one, which then takes its name. Mode, owner and extended attributes are
kept, a symbolic link stays one (its target is written), and a file with further hard links is written in place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from aerix_server.tools.base import Refusal, ToolContext, ToolError
from aerix_server.tools.names import display, os_sentence, special_kind


@dataclass(frozen=True)
class Target:
    """Where a write goes: `path` as asked, `real` with links followed, `seen` None for a file to be made."""

    path: Path
    real: Path
    seen: os.stat_result | None

    def shown(self, ctx: ToolContext) -> str:
        """The name for a result; a link is named with the file behind it."""
        name = display(self.path, ctx.cwd)
        return f"{name} (a link to {display(self.real, ctx.cwd)})" if self.path.is_symlink() else name

    def changed_name(self, ctx: ToolContext) -> str:
        """The name of the file whose bytes a write changes."""
        return display(self.real if self.path.is_symlink() else self.path, ctx.cwd)


def find_target(path: Path, ctx: ToolContext) -> Target:
    """Raises Refusal for what is no plain file, ToolError for what cannot be looked at."""
    shown = display(path, ctx.cwd)
    try:
        real = Path(os.path.realpath(path, strict=False))
        seen = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return Target(path, real, None)
    except NotADirectoryError:
        raise ToolError(f"cannot write {shown}: a part of its path is a file, not a directory") from None
    except OSError as error:
        raise os_sentence("write", path, ctx, error) from error
    if stat.S_ISDIR(seen.st_mode):
        raise ToolError(f"{shown} is a directory", "Give the path of a file in it; read lists what is there.")
    kind = special_kind(seen.st_mode)
    if kind:
        raise Refusal(f"{shown} is {kind}; only plain files are written")
    return Target(path, real, seen)


def save(target: Target, data: bytes, ctx: ToolContext) -> None:
    """Write `data` and read it back. Raises ToolError; the old file is then as it was, unless the error says else."""
    ctx.before_write(target.real)
    try:
        _still_the_same(target, ctx)
        if target.seen is None:
            target.real.parent.mkdir(parents=True, exist_ok=True)
            _replace(target, data)
        elif not os.access(target.real, os.W_OK):
            raise ToolError(f"{target.shown(ctx)} is read-only (mode {stat.S_IMODE(target.seen.st_mode):04o})")
        elif target.seen.st_nlink > 1 or not _may_replace(target):
            _overwrite(target, data)
        else:
            _replace_or_overwrite(target, data)
        written = target.real.read_bytes()
    except OSError as error:
        raise _cannot_write(target, error, ctx) from error
    if written != data:
        raise ToolError(f"{target.shown(ctx)} was written, but reads back otherwise: another program writes it too")


def _still_the_same(target: Target, ctx: ToolContext) -> None:
    try:
        now: os.stat_result | None = target.real.stat()
    except FileNotFoundError:
        now = None
    if _identity(now) != _identity(target.seen):
        raise ToolError(f"{target.shown(ctx)} changed while it was being written", "Read it again, then repeat.")


def _identity(seen: os.stat_result | None) -> tuple[int, ...]:
    return (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns) if seen else ()


def _may_replace(target: Target) -> bool:
    """False where a new file could not take the old one's place: a read-only directory, or another user's file."""
    assert target.seen is not None
    own = os.geteuid() in (0, target.seen.st_uid)
    return own and os.access(target.real.parent, os.W_OK | os.X_OK)


def _replace_or_overwrite(target: Target, data: bytes) -> None:
    try:
        _replace(target, data)
    except OSError as error:
        # A file that is itself a mount point (as in a container) cannot change its inode.
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        _overwrite(target, data)


def _overwrite(target: Target, data: bytes) -> None:
    assert target.seen is not None
    with target.real.open("r+b") as file:
        file.write(data)
        file.truncate()
        file.flush()
        if os.fstat(file.fileno()).st_mode != target.seen.st_mode:
            with contextlib.suppress(PermissionError):
                os.fchmod(file.fileno(), stat.S_IMODE(target.seen.st_mode))
        os.fsync(file.fileno())


def _replace(target: Target, data: bytes) -> None:
    beside = target.real.parent / f".aerix-{secrets.token_hex(8)}.tmp"
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            # Last: for everyone but the superuser a write takes the set-user and set-group bits away.
            if target.seen is not None:
                _keep_attributes(file.fileno(), target)
            os.fsync(file.fileno())
        os.replace(beside, target.real)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    _sync_directory(target.real.parent)


def _keep_attributes(handle: int, target: Target) -> None:
    seen = target.seen
    assert seen is not None
    made = os.fstat(handle)
    if (made.st_uid, made.st_gid) != (seen.st_uid, seen.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(handle, seen.st_uid, seen.st_gid)
    os.fchmod(handle, stat.S_IMODE(seen.st_mode))
    if hasattr(os, "listxattr"):
        _copy_extended(target.real, handle)


def _copy_extended(source: Path, handle: int) -> None:
    """Extended attributes, access lists among them; one that only the system may set keeps none of the others back."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listxattr(source)
    for name in names:
        with contextlib.suppress(OSError):
            os.setxattr(handle, name, os.getxattr(source, name))


def _sync_directory(directory: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _cannot_write(target: Target, error: OSError, ctx: ToolContext) -> ToolError:
    parent = target.real.parent
    if isinstance(error, FileExistsError | NotADirectoryError):
        return ToolError(f"cannot write {target.shown(ctx)}: a part of its path is a file, not a directory")
    if target.seen is None and parent.is_dir() and not os.access(parent, os.W_OK):
        return ToolError(f"cannot write {target.shown(ctx)}: the directory {display(parent, ctx.cwd)} is read-only")
    return os_sentence("write", target.path, ctx, error)
