"""repo_map: the file tree with sizes and languages, made once for each request."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from aerix_server.config.bounds import FILE_TOOL_S
from aerix_server.tools.base import Output, Tool, ToolContext, ToolInput
from aerix_server.tools.files import FileEntry, list_files
from aerix_server.tools.languages import language
from aerix_server.tools.names import escape_name

_KEY = "repo_map"
_SPARE_BYTES = 256
"""Left free under the cap for the head and the notes."""


class RepoMapInput(ToolInput):
    pass


class RepoMap(Tool[RepoMapInput]):
    name = "repo_map"
    description = "Shows the tree of files with sizes and languages."
    input_model = RepoMapInput
    only_looks = True
    limit_s = FILE_TOOL_S

    async def run(self, call: RepoMapInput, ctx: ToolContext) -> Output:
        if _KEY not in ctx.cache:
            ctx.cache[_KEY] = await asyncio.to_thread(_map, ctx)
        return Output(str(ctx.cache[_KEY]))


def _map(ctx: ToolContext) -> str:
    found = list_files(ctx.cwd, ctx.cancelled.is_set)
    if not found.files:
        return "[no files]"
    return render(found.files, found.notes, ctx.settings.context.tool_caps.repo_map)


@dataclass
class Folder:
    """A directory of the tree; the totals are of everything below it."""

    folders: dict[str, Folder] = field(default_factory=dict)
    files: list[FileEntry] = field(default_factory=list)
    count: int = 0
    size: int = 0
    languages: Counter[str] = field(default_factory=Counter)
    unfolded: int = 0
    """How many of its entries are shown; 0 leaves it folded to one line."""

    def add(self, entry: FileEntry) -> None:
        kind = language(entry.name) or "other"
        folder = self
        folder._total(entry, kind)
        for parent in entry.name.split("/")[:-1]:
            inner = folder.folders.get(parent)
            if inner is None:
                inner = folder.folders[parent] = Folder()
            folder = inner
            folder._total(entry, kind)
        folder.files.append(entry)

    def _total(self, entry: FileEntry, kind: str) -> None:
        self.count += 1
        self.size += entry.size
        self.languages[kind] += entry.size

    def entries(self, depth: int) -> list[str]:
        """The lines of the entries: folders first, then files, each in the order of names."""
        pad = "  " * depth
        folded = [f"{pad}{_folder_line(name, folder)}" for name, folder in self.ordered()]
        return folded + [f"{pad}{_file_line(entry)}" for entry in self.files]

    def ordered(self) -> list[tuple[str, Folder]]:
        return sorted(self.folders.items())


def render(files: Iterable[FileEntry], notes: tuple[str, ...], limit: int) -> str:
    """The map in at most about `limit` bytes: folders are opened from the top down while there is room."""
    root = Folder()
    for entry in files:
        root.add(entry)
    _unfold(root, limit - _SPARE_BYTES - sum(len(note.encode()) for note in notes))
    lines = [_summary(root), *_lines(root, 0), *(f"[{note}]" for note in notes)]
    return "\n".join(lines)


def _unfold(root: Folder, room: int) -> None:
    """Decide what is shown: level by level, each folder whole if it fits. What fits only in part is shown in part at
    the top, so that a flat directory of any size still says something."""
    pending = deque([(root, 0)])
    while pending:
        folder, depth = pending.popleft()
        sizes = [len(line.encode("utf-8", "replace")) + 1 for line in folder.entries(depth)]
        cost = sum(sizes)
        if cost <= room:
            folder.unfolded = len(sizes)
            room -= cost
            pending.extend((inner, depth + 1) for _, inner in folder.ordered())
        elif folder is root:
            while folder.unfolded < len(sizes) and (room := room - sizes[folder.unfolded]) > 0:
                folder.unfolded += 1


def _lines(folder: Folder, depth: int) -> list[str]:
    own = folder.entries(depth)
    ordered = folder.ordered()
    shown: list[str] = []
    for index, line in enumerate(own[: folder.unfolded]):
        shown.append(line)
        if index < len(ordered):
            shown.extend(_lines(ordered[index][1], depth + 1))
    if folder.unfolded and len(own) > folder.unfolded:
        shown.append(f"{'  ' * depth}[{len(own) - folder.unfolded} more entries; list them with read or glob]")
    return shown


def _summary(root: Folder) -> str:
    return f"{_files(root.count)}, {size_text(root.size)}: {_languages(root, 6)}"


def _folder_line(name: str, folder: Folder) -> str:
    return f"{escape_name(name)}/ ({_files(folder.count)}, {size_text(folder.size)}, {_languages(folder, 3)})"


def _file_line(entry: FileEntry) -> str:
    words = [escape_name(entry.name.rpartition("/")[2]), size_text(entry.size), language(entry.name)]
    return "  ".join(word for word in words if word)


def _languages(folder: Folder, most: int) -> str:
    """The languages with the most bytes, largest first."""
    ranked = sorted(folder.languages.items(), key=lambda item: (-item[1], item[0]))
    names = [name for name, _ in ranked[:most]]
    return ", ".join(names) + (f" and {len(ranked) - most} more" if len(ranked) > most else "")


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"


def size_text(size: int) -> str:
    """Bytes for a reader: 812 B, 4.2 kB, 13 MB."""
    value = float(size)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
