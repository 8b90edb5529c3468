"""Layers, their order, trust, and what a user reads when a value is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aerix_server.config.keys import KEYS, flatten, nest
from aerix_server.config.layers import FAULTS_TOLD
from aerix_server.config.load import Loaded, SettingsError, load_settings
from aerix_server.config.settings import TRUSTED_KEYS, Settings
from aerix_server.config.toml_lines import KEY_PARTS, has_deep_key, key_lines
from aerix_server.config.trust import tightened


class Place:
    """A home with a user's file, and a project with its own."""

    def __init__(self, folder: Path) -> None:
        self.env = {"XDG_CONFIG_HOME": str(folder / "config"), "HOME": str(folder)}
        self.user = folder / "config" / "aerix" / "config.toml"
        self.cwd = folder / "project"
        self.project = self.cwd / ".aerix" / "config.toml"
        for path in (self.user, self.project):
            path.parent.mkdir(parents=True)

    def load(self, overrides: dict[str, Any] | None = None, **env: str) -> Loaded:
        return load_settings(self.cwd, overrides or {}, self.env | env)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_nothing_written_gives_the_defaults(place: Place) -> None:
    loaded = place.load()
    assert loaded.settings == Settings()
    assert loaded.notices == ()
    assert set(loaded.sources.values()) == {"default"} and set(loaded.sources) == set(KEYS)


def test_later_layers_win_key_by_key(place: Place) -> None:
    place.user.write_text('[main]\nmodel = "user"\n[context]\nmax_new_tokens = 111\nsoft_ratio = 0.8\n')
    place.project.write_text(
        "[context]\nmax_new_tokens = 222\n[context.tool_caps]\nread = 999\n[delegation]\ndepth = 1\n"
    )
    loaded = place.load({"main": {"model": "flag"}, "delegation.depth": 2}, AERIX_CONTEXT_SOFT_RATIO="0.9")
    settings = loaded.settings
    assert (settings.main.model, settings.context.max_new_tokens, settings.context.soft_ratio) == ("flag", 222, 0.9)
    assert (settings.context.tool_caps.read, settings.context.tool_caps.bash, settings.delegation.depth) == (
        999,
        12_000,
        2,
    )
    assert loaded.sources["main.model"] == "flags"
    assert loaded.sources["context.soft_ratio"] == "AERIX_CONTEXT_SOFT_RATIO"
    assert loaded.sources["context.max_new_tokens"] == str(place.project)
    assert loaded.notices == ()


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[main]\n\nmodle = 'x'\n", 3, "unknown key main.modle; did you mean main.model?"),
        ("# c\n[context]\nmax_tokens = 5\n", 3, "unknown key context.max_tokens; did you mean context.max_new_tokens?"),
        ("[contxt]\nmax_new_tokens = 5\n", 1, "unknown key contxt"),
        (
            "[pool]\nstart_timeout_secs = '900'\n",
            2,
            "pool.start_timeout_secs: input should be a valid integer, not '900'",
        ),
        ("delegation.depth = -1\n", 1, "delegation.depth: input should be greater than or equal to 0, not -1"),
        ("[routing]\nenabled = 1\n", 2, "routing.enabled: input should be a valid boolean, not 1"),
        (
            "[sandbox]\nmode = 'none'\n",
            2,
            "sandbox.mode: input should be 'off', 'workspace' or 'read-only', not 'none'",
        ),
        ("main = 'smollm2'\n", 1, "main is a table of settings, not a value"),
        ("[context]\ntool_caps = { read = 1 }\n", 2, "context.tool_caps.read: input should be greater than"),
        ("[main]\nmodel = {a = 1}\n", 2, "main.model: input should be a valid string"),
        ("[main]\nflags = ['a', 3]\n", 2, "main.flags: input should be a valid string"),
        ("x = '''\n[main]\nbad = 1\n'''\n[main]\nbad = 2\n", 6, "unknown key main.bad"),
    ],
)
def test_a_fault_is_one_line_with_its_place(place: Place, text: str, line: int, says: str) -> None:
    place.user.write_text(text)
    with pytest.raises(SettingsError) as caught:
        place.load()
    problem = caught.value.problems[-1]
    assert problem.startswith(f"{place.user}:{line}: {says}")
    assert "\n" not in problem


@pytest.mark.parametrize("data", [b"[main\n", b"\xff\xfe", b"a = " + b"[" * 100_000])
def test_a_file_that_is_no_toml_is_named(place: Place, data: bytes) -> None:
    place.user.write_bytes(data)
    with pytest.raises(SettingsError, match=str(place.user)):
        place.load()


def test_a_byte_order_mark_and_crlf_are_read(place: Place) -> None:
    place.user.write_bytes(b'\xef\xbb\xbf[main]\r\nmodel = "m"\r\n')
    assert place.load().settings.main.model == "m"


def test_every_fault_is_told_at_once(place: Place) -> None:
    place.user.write_text("[main]\nmodle = 1\n[pool]\nsockt = 2\n")
    with pytest.raises(SettingsError) as caught:
        place.load({"nope": 1}, AERIX_ROUTING_ENABLED="perhaps")
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("AERIX_MAIN_MODEL", "1234", "main.model", "1234"),
        ("AERIX_DECISION_MODEL", "small", "decision.model", "small"),
        ("AERIX_CONTEXT_TOOL_CAPS_REPO_MAP", "300", "context.tool_caps.repo_map", 300),
        ("AERIX_MAIN_FLAGS", '["--threads", "2"]', "main.flags", ["--threads", "2"]),
        ("AERIX_ROUTING_ENABLED", "false", "routing.enabled", False),
        ("AERIX_SANDBOX_MODE", "read-only", "sandbox.mode", "read-only"),
        ("AERIX_MAIN_MODEL", "", "main.model", "auto"),
    ],
)
def test_the_environment(place: Place, name: str, text: str, key: str, value: Any) -> None:
    loaded = place.load(**{name: text})
    assert dict(flatten(loaded.settings.model_dump()))[key] == value


@pytest.mark.parametrize("name", ["AERIX_MAIN_MODLE", "AERIX_CONTEXT_X", "AERIX_MIAN_MODEL"])
def test_a_misspelt_variable_is_named(place: Place, name: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}: no such setting; did you mean AERIX_"):
        place.load(**{name: "x"})


def test_foreign_variables_are_left_alone(place: Place) -> None:
    assert place.load(AERIX_PROJECT_DIR="/x", AERIXMAIN="y").settings == Settings()


def test_a_faulty_project_file_costs_the_key_and_is_told(place: Place) -> None:
    place.project.write_text("[main]\nmodle = 'x'\nmodel = 'kept'\n")
    loaded = place.load()
    assert loaded.settings.main.model == "kept"
    (notice,) = loaded.notices
    assert notice == f"{place.project}:2: unknown key main.modle; did you mean main.model? (ignored)"


LOOSE = {
    "main.flags": ["--x"],
    "pool.socket": "/tmp/other.sock",
    "pool.caldrix": "evil",
    "permissions.allow": ["Bash(*)"],
    "permissions.mode": "auto",
    "sandbox.mode": "off",
    "sandbox.network": True,
}
STRICT_BASE = {"permissions.mode": "ask", "sandbox.mode": "workspace", "sandbox.network": False}


@pytest.mark.parametrize("key", LOOSE)
def test_a_project_cannot_loosen(place: Place, key: str) -> None:
    def toml(key: str, value: Any) -> str:
        return f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}\n"

    place.user.write_text("".join(toml(*item) for item in STRICT_BASE.items()))
    place.project.write_text("# mine\n" + toml(key, LOOSE[key]))
    loaded = place.load()
    (notice,) = loaded.notices
    assert notice.startswith(f"{place.project}:2: {key} is not taken") and str(place.user) in notice
    assert dict(flatten(loaded.settings.model_dump()))[key] != LOOSE[key]


def test_a_project_may_tighten(place: Place) -> None:
    place.user.write_text("[permissions]\ndeny = ['A']\nask = ['B']\nallow = ['C', 'D']\n")
    place.project.write_text(
        "[permissions]\ndeny = ['Z']\nask = ['Y']\nallow = ['C']\nmode = 'ask'\n"
        "[sandbox]\nmode = 'read-only'\nnetwork = false\n"
    )
    loaded = place.load()
    permissions = loaded.settings.permissions
    assert (permissions.deny, permissions.ask, permissions.allow) == (["A", "Z"], ["B", "Y"], ["C"])
    assert (permissions.mode, loaded.settings.sandbox.mode, loaded.settings.sandbox.network) == (
        "ask",
        "read-only",
        False,
    )
    assert loaded.notices == ()


def test_every_trusted_key_has_a_rule() -> None:
    base = dict(flatten(Settings().model_dump()))
    assert set(base) >= TRUSTED_KEYS
    for key in TRUSTED_KEYS:
        assert tightened(key, base[key], base) == (True, base[key])


def test_the_project_file_is_looked_for_up_to_the_top(place: Place) -> None:
    place.project.write_text("[delegation]\ndepth = 7\n")
    below = place.cwd / "a" / "b"
    below.mkdir(parents=True)
    assert load_settings(below, {}, place.env).settings.delegation.depth == 3
    (place.cwd / ".git").mkdir()
    assert load_settings(below, {}, place.env).settings.delegation.depth == 7
    assert load_settings(None, {}, place.env).settings.delegation.depth == 3


def test_ratios_that_would_compact_for_ever_are_refused(place: Place) -> None:
    place.user.write_text("[context]\ntarget_ratio = 0.9\n")
    with pytest.raises(SettingsError, match="must be under"):
        place.load()


def test_ratios_of_a_project_that_would_compact_for_ever_are_ignored(place: Place) -> None:
    place.user.write_text("[context]\ntarget_ratio = 0.4\n")
    place.project.write_text("[context]\ntarget_ratio = 0.9\n[delegation]\ndepth = 7\n")
    loaded = place.load()
    assert (loaded.settings.context.target_ratio, loaded.settings.delegation.depth) == (0.4, 7)
    assert "must be under" in loaded.notices[0] and str(place.project) in loaded.notices[0]
    assert loaded.sources["context.target_ratio"] == str(place.user)


def test_keys_nest_and_flatten_back() -> None:
    values = dict(flatten(Settings().model_dump()))
    assert Settings.model_validate(nest(values)) == Settings()


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("a = 1\n[b.c]\nd = 2", "b.c.d", 3),
        ("[b]\nc.d = 2", "b.c.d", 2),
        ('["b"]\n"c" . d = 2', "b.c.d", 2),
        ("[b]\nc = { d = 2 }", "b.c.d", 2),
        ("[x]\n[b]\n", "b.c.d", 2),
        ("a = '''\nb = 1\n'''\nb = 2", "b", 4),
        ("", "b", None),
    ],
)
def test_the_line_of_a_key(text: str, key: str, line: int | None) -> None:
    assert key_lines(text)(key) == line


@pytest.mark.parametrize("part", ["a", '"a.b"', "'a'", '"\\""', "a ", "a-1"])
def test_a_key_of_too_many_parts(part: str) -> None:
    assert not has_deep_key(".".join([part] * KEY_PARTS) + " = 1")
    assert has_deep_key("x = 1\n[" + ".".join([part] * (KEY_PARTS + 1)) + "]")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a" + ".a" * 30_000 + " = 1", f"it has a key of more than {KEY_PARTS} parts"),
        ("main.flags = [{ a" + ".a" * 30_000 + " = 1 }]", f"it has a key of more than {KEY_PARTS} parts"),
        ("a = " + "[" * 50_000, "not valid TOML"),
        ("#" * 300_000, "larger than"),
    ],
)
def test_a_hostile_project_file_costs_no_memory(place: Place, text: str, told: str) -> None:
    place.project.write_text(text)
    loaded = place.load()
    assert loaded.settings == Settings()
    assert [told in notice for notice in loaded.notices] == [True]


def test_a_project_file_of_unknown_keys_is_told_in_a_few_lines(place: Place) -> None:
    place.project.write_text("".join(f"k{number} = 1\n" for number in range(20_000)) + "delegation.depth = 7\n")
    loaded = place.load()
    assert loaded.settings.delegation.depth == 7
    assert len(loaded.notices) == FAULTS_TOLD + 1
    assert loaded.notices[-1] == f"and {20_000 - FAULTS_TOLD} more keys that are not known (ignored)"


@pytest.mark.parametrize("name", ["AERIX_COMMAND", "AERIX_VENV", "AERIX_SET_UP", "AERIX_LOG_LEVEL"])
def test_variables_of_scripts_are_no_misspelt_settings(place: Place, name: str) -> None:
    assert place.load(**{name: "x"}).settings == Settings()


def test_a_rule_that_nothing_acts_on_yet_is_told(place: Place) -> None:
    place.user.write_text("[permissions]\ndeny = ['Bash(rm:*)']\n[context]\nmax_new_tokens = 100\n")
    (line,) = place.load().without_effect
    assert line == f"{place.user}:2: permissions.deny has no effect in this version"
