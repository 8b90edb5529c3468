"""Terminals for the paths that a call may name: what is there, and anything outside the working directory. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from aerix_server.config.bounds import NAME_CHARS
from aerix_server.runtime.lark import in_string

_CHARACTERS: Final = r'[^"\\\x00-\x1f\x7f]'
"""Of a path in a JSON string, unescaped; names with control characters are shown with these escaped."""
_REST: Final = rf'/(?:{_CHARACTERS}|\\["\\]){{0,{NAME_CHARS}}}/'
"""Any further characters of a path."""


@dataclass(frozen=True)
class KnownPaths:
    """What is there under the working directory, relative to it and as the tools show it.

    `hidden` are directories whose inside was not looked at: ignored by git, linked, or empty. `beside` is what else
    lies in the directory above (empty: it was not looked at), `top` what lies in `/`: below those, paths are free.
    """

    files: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    top: tuple[str, ...] = ()


def path_terminals(root: str, known: KnownPaths | None, own: Sequence[str]) -> list[str]:
    """The terminals FILES, DIRECTORIES and PATHS, and FILE0, FILE1, … for each of the files `own`, OTHER_FILES for the
    rest of them.

    `root` is the working directory's absolute path as the tools show it; a path may begin with it or with `./`. With
    None known, the first three are left out, and any path is among the OTHER_FILES.
    """
    root = root.rstrip("/")
    named = [f"FILE{number}" for number in range(len(own))]
    terminals = {"UNDER": f'"./" | {in_string(root + "/")}'}
    terminals |= {name: _quoted(f"UNDER? {in_string(path)}") for name, path in zip(named, own, strict=True)}
    if known is not None:
        terminals |= _known_terminals(root, known, named, [path for path in known.files if path not in own])
    elif own:
        terminals["OTHER_FILES"] = f"{_quoted(_REST)} & ~({' | '.join(named)})"
    return [f"{name}: {terminal}" for name, terminal in terminals.items()]


def _known_terminals(root: str, known: KnownPaths, named: Sequence[str], others: Sequence[str]) -> dict[str, str]:
    below = _under([*known.directories, *known.hidden], '"/"?')
    top = _any_of({".", "./", root or "/", root + "/"})
    return {
        **_elsewhere(root, known),
        "HIDDEN": _under(known.hidden, f'"/" {_REST}') + "ELSEWHERE",
        "OTHER_FILES": _quoted(_under(others) + "HIDDEN"),
        "FILES": " | ".join([*named, "OTHER_FILES"]),
        "DIRECTORIES": _quoted(f"{below} {top} | HIDDEN"),
        "PATHS": "FILES | DIRECTORIES",
    }


def _under(names: Sequence[str], after: str = "") -> str:
    """Any of the names, and what may follow it, as the first of several choices; nothing where there are no names."""
    return f"UNDER? {_any_of(names)} {after} | " if names else ""


def _elsewhere(root: str, known: KnownPaths) -> dict[str, str]:
    """The terminal ELSEWHERE: paths through the directory above, and absolute ones that do not lead to `root`.

    The latter are told from it character by character, AWAY<n> after n of them: a lexer can take the complement of a
    set, but not within its bounds of work.
    """
    first = root[1:].partition("/")[0]
    start = len(first) + 1
    absolute = [f"{in_string(first)} AWAY{start}"] if start < len(root) else []
    if others := [name for name in known.top if root and name != first]:
        absolute.append(f'{_any_of(others)} ("/" {_REST})?')
    above = f'{_any_of(known.beside)} ("/" {_REST})?' if known.beside else _REST
    choices = [f'".." ("/" ({above})?)?', *(f'"/" ({choice})' for choice in absolute)]
    terminals = {"ELSEWHERE": " | ".join(choices)}
    for place in range(start, len(root)):
        # What goes on otherwise behind the first name is another name in /.
        apart = f"{_other(root[place])} {_REST} | " if place > start else ""
        after = f"AWAY{place + 1}" if place + 1 < len(root) else "AWAY"
        terminals[f"AWAY{place}"] = f"({apart}{in_string(root[place])} {after})?"
    return terminals | {"AWAY": f"{_other('/')} {_REST}"}


def _other(character: str) -> str:
    """Any character of a path in a JSON string but this one."""
    match character:
        case '"':
            return rf"/{_CHARACTERS}|\\\\/"
        case "\\":
            return rf'/{_CHARACTERS}|\\"/'
        case _:
            return rf'/[^"\\\x00-\x1f\x7f\x{{{ord(character):x}}}]|\\["\\]/'


def _quoted(terminal: str) -> str:
    return rf'"\"" ({terminal}) "\""'


def _any_of(names: Iterable[str]) -> str:
    return "(" + "|".join(map(in_string, sorted(names))) + ")"
