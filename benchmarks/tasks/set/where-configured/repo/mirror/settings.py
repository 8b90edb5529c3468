"""What is set in conf/."""

import configparser
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "conf"


@dataclass(frozen=True)
class Transfer:
    timeout: float
    attempts: int
    wait: float = 0.0


def download_settings():
    section = _read("network.ini")["download"]
    return Transfer(section.getfloat("timeout_seconds"), section.getint("max_attempts"), section.getfloat("wait_seconds"))


def upload_settings():
    section = _read("upload.ini")["upload"]
    return Transfer(section.getfloat("timeout_seconds"), section.getint("max_attempts"))


def _read(name):
    parser = configparser.ConfigParser()
    parser.read(FOLDER / name, encoding="utf-8")
    return parser
