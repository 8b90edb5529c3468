import unittest

from durations import format_duration, parse_duration


class Parse(unittest.TestCase):
    def test_hours_and_minutes(self):
        self.assertEqual(parse_duration("1h30m"), 90)
        self.assertEqual(parse_duration("2h"), 120)
        self.assertEqual(parse_duration("45m"), 45)

    def test_anything_else_is_refused(self):
        for text in ("", "soon", "1h30"):
            with self.assertRaises(ValueError):
                parse_duration(text)


class Format(unittest.TestCase):
    def test_hours_and_minutes(self):
        self.assertEqual(format_duration(90), "1h30m")
        self.assertEqual(format_duration(45), "45m")

    def test_full_hours_have_no_minutes(self):
        self.assertEqual(format_duration(120), "2h")
