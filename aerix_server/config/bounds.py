"""Every fixed bound, in one place. Seconds, bytes, characters or counts, as each name says."""

from __future__ import annotations

from typing import Final

TURN_RETRIES: Final = 2
"""Re-asks for a turn that did not parse or was cut by the token limit."""
CALLS_KEPT: Final = 8
"""Calls kept of one turn; the rest are dropped with a note."""
THOUGHT_CHARS: Final = 600
REPEAT_NOTICE: Final = 3
"""Times one canonical call is made before the model is told."""
REPEAT_STOP: Final = 5
"""Times one canonical call is made before the agent is stopped by name."""
HARD_LIMIT_HITS: Final = 2
"""Times a context may have no room left before its agent is killed."""
ROOM_FLOOR_TOKENS: Final = 64
"""The least room a cut turn needs."""
KNOWN_PATHS: Final = 2000
"""Files and directories that a turn's paths are held to; where there are more, paths are free."""
NAMES_BESIDE: Final = 500
"""In the directory above; where there are more, paths through it are free."""
KNOWN_PATHS_S: Final = 1.0
"""What finding them may take before each turn."""
UNIQUE_CHARS: Final = 200
"""A part of a file that so many characters do not tell from another is no `old` of an edit."""
UNIQUE_TOTAL_CHARS: Final = 16 * 1024
"""Of the files whose edits are held to what stands in them once: as much compiles in about 0.07 s."""
APPEND_TRIES: Final = 3
STOP_CONTINUES: Final = 5
ROUTING_TOKENS: Final = 8
BYTES_PER_TOKEN: Final = 3
"""How many bytes of a result one token of room takes, when it is fitted."""

BASH_TIMEOUT_S: Final = 120
BASH_TIMEOUT_MAX_S: Final = 600
KILL_GRACE_S: Final = 2.0
"""From TERM to KILL."""
CANCEL_POLL_S: Final = 0.1
JOB_WAIT_SLACK_S: Final = 10.0
"""Waiting at a final: the latest job's timeout and this."""
JOB_POLL_S: Final = 1.0
BASH_CAPTURE_BYTES: Final = 1024 * 1024
"""Kept in memory of each stream of a command: half its head, half its tail; the rest goes to the spool only."""
SPOOL_BYTES: Final = 64 * 1024 * 1024
"""The most of one result that the spool keeps."""

COMMAND_DRAIN_S: Final = 0.5
"""How long a command that ended is still read from, when a child of it holds its output open."""

FILE_TOOL_S: Final = 120.0
"""What read, write, edit, glob, grep and repo_map may take; a file system that does not answer ends there."""
NAME_CHARS: Final = 1000
"""A path, a pattern or an address in a tool's input: without a bound, a model that repeats itself fills its turn."""
LARGEST_NUMBER: Final = 1_000_000_000
"""Of a tool's input, for the same reason."""
READ_LINES: Final = 200
READ_LINE_CHARS: Final = 2000
READ_PAGE_BYTES: Final = 1024 * 1024
"""The most text of one read; it ends at a whole line and says where to go on."""
EDIT_FILE_BYTES: Final = 64 * 1024 * 1024
"""The largest file that is edited, or compared when it is replaced."""
TOLERANT_PLACES: Final = 1000
"""Places that a tolerant search of edit counts before it stops; one is enough to act, two to refuse."""
SYNTAX_FILE_BYTES: Final = 256 * 1024
"""The largest file that is parsed after a change: a parser holds up every other thread, about 0.1 s for as much."""
GREP_MATCHES: Final = 200
GREP_LINE_CHARS: Final = 400
GREP_FILE_BYTES: Final = 8 * 1024 * 1024
GREP_SECONDS: Final = 30.0
GLOB_PATHS: Final = 1000
WALK_FILES: Final = 200_000
"""Files a walk outside a repository looks at before it stops and says so."""

HOOK_TIMEOUT_S: Final = 600.0
HOOK_TIMEOUT_SHORT_S: Final = 30.0
"""For UserPromptSubmit and SessionEnd."""
CONTROL_TIMEOUT_S: Final = 30.0
"""Pool handshake and control requests."""
FRAME_GAP_S: Final = 600.0
"""Between two frames of a generation."""
AUTOSTART_POLL_S: Final = 0.5
GIT_TIMEOUT_S: Final = 30.0
GIT_REMOTE_TIMEOUT_S: Final = 10.0
GIT_REFUSALS: Final = 64
"""Files git refuses to take (a filter fails) that are told apart before all that are left count as refused."""
SHADOW_FILE_BYTES: Final = EDIT_FILE_BYTES
"""The largest file that is kept as it was before a tool first changes it."""
SHADOW_TOTAL_BYTES: Final = 512 * 1024 * 1024
"""Of one request."""
SHADOW_FILES: Final = 10_000
"""Of one request."""
CAS_RETRIES: Final = 3
