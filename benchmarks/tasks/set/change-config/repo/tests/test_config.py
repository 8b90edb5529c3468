import unittest

from server.config import load, merged


class Config(unittest.TestCase):
    def test_sections_are_merged(self):
        self.assertEqual(merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}), {"a": {"b": 1, "c": 3}})

    def test_the_environment_wins(self):
        self.assertEqual(load("production")["log_level"], "warning")
        self.assertEqual(load("production")["session"]["cookie"], "sid")
