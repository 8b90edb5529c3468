import unittest

from durations import format_duration, parse_duration


class Hidden(unittest.TestCase):
    def test_full_hours(self):
        self.assertEqual([format_duration(n * 60) for n in (1, 2, 24)], ["1h", "2h", "24h"])

    def test_every_duration_is_read_back(self):
        for minutes in range(0, 400):
            self.assertEqual(parse_duration(format_duration(minutes)), minutes)

    def test_below_an_hour(self):
        self.assertEqual([format_duration(n) for n in (0, 1, 59, 61)], ["0m", "1m", "59m", "1h1m"])
