import json
import unittest
from pathlib import Path

WANTED = {
    "session": {"timeout_minutes": 45, "secure": True},
    "mail": {"timeout_seconds": 30, "host": "mail.example.org"},
    "log_level": "warning",
}


class Hidden(unittest.TestCase):
    def test_only_the_one_value_is_another(self):
        self.assertEqual(json.loads(Path("config/production.json").read_text(encoding="utf-8")), WANTED)
