"""Streamed text broken between words at a terminal's width.

A word is held back until it ends, so that it is never broken; code keeps its lines: what stands between fences, is
indented, or is a table's row. A terminal breaks those itself, as it does a word longer than its line.
"""

from __future__ import annotations

from typing import Final

from prompt_toolkit.utils import get_cwidth

FENCE: Final = "```"
VERBATIM: Final = ("    ", "\t", "|", FENCE)


class WordWrap:
    def __init__(self, width: int) -> None:
        self._width = max(width, 8)
        self._column = 0
        self._word = ""
        self._start = ""
        self._fenced = False
        self._long = False

    def feed(self, text: str) -> str:
        """What can be shown of the text so far and was not yet."""
        return "".join(self._take(character) for character in text)

    def end(self) -> str:
        """The word that was held back."""
        return self._put()

    def _take(self, character: str) -> str:
        if character == "\n":
            return self._end_line()
        if len(self._start) < len(FENCE) + 1:
            self._start += character
        if self._verbatim():
            return self._put() + character
        if character == " ":
            return self._put() + self._space()
        self._word += character
        if get_cwidth(character) > 1:  # of a script that is written without blanks
            return self._put()
        if get_cwidth(self._word) < self._width:
            return ""
        shown, self._long = self._put(), True  # the terminal breaks the rest
        return shown

    def _verbatim(self) -> bool:
        return self._fenced or self._start.startswith(VERBATIM)

    def _end_line(self) -> str:
        shown = self._put() + "\n"
        if self._start.startswith(FENCE):
            self._fenced = not self._fenced
        self._column, self._start, self._long = 0, "", False
        return shown

    def _space(self) -> str:
        """A blank where the line ends is not shown."""
        self._long = False
        if self._column >= self._width - 1:
            return ""
        self._column += 1
        return " "

    def _put(self) -> str:
        word, self._word = self._word, ""
        if not word:
            return ""
        width = get_cwidth(word)
        if self._long:
            self._column = (self._column + width) % self._width
            return word
        breaks = self._column and self._column + width > self._width and not self._verbatim()
        self._column = width if breaks else self._column + width
        return ("\n" if breaks else "") + word
