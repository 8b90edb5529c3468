"""The help for small models is switched in each layer, like every key."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerix_server.config.load import SettingsError, load_settings
from aerix_server.config.settings import Assist, Settings


def load(folder: Path, text: str = "", overrides: dict[str, object] | None = None, **env: str) -> Settings:
    user = folder / "aerix" / "config.toml"
    user.parent.mkdir(parents=True, exist_ok=True)
    user.write_text(text)
    return load_settings(folder, overrides or {}, {"XDG_CONFIG_HOME": str(folder), "HOME": str(folder), **env}).settings


@pytest.mark.parametrize("key", [name for name, field in Assist.model_fields.items() if field.annotation is bool])
def test_a_help_is_switched_by_file_environment_and_flag(tmp_path: Path, key: str) -> None:
    for value, word in ((True, "true"), (False, "false")):
        assert getattr(load(tmp_path, f"[assist]\n{key} = {word}\n").assist, key) is value
        assert getattr(load(tmp_path, **{f"AERIX_ASSIST_{key.upper()}": word}).assist, key) is value
        assert getattr(load(tmp_path, overrides={f"assist.{key}": value}).assist, key) is value


@pytest.mark.parametrize("value", ["-0.1", "1.1", '"much"'])
def test_a_doubt_is_a_probability(tmp_path: Path, value: str) -> None:
    with pytest.raises(SettingsError, match=r"assist\.doubt_below"):
        load(tmp_path, f"[assist]\ndoubt_below = {value}\n")
    assert load(tmp_path, "[assist]\ndoubt_below = 0.5\n").assist.doubt_below == 0.5
