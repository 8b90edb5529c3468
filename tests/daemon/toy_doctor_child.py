"""The child process of `caldrix doctor REF`, over a scripted engine."""

from __future__ import annotations

import sys

from caldrix.commands.doctor_child import main
from tests.doubles.toy_backend import load_toy

if __name__ == "__main__":
    sys.exit(main(load_toy))
