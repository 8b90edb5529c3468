import unittest

from access.parser import Record, parse_line, parse_lines


class Parser(unittest.TestCase):
    def test_a_line(self):
        self.assertEqual(parse_line("::1 GET / 200 17"), Record("::1", "GET", "/", 200, 17))

    def test_a_broken_line(self):
        with self.assertRaises(ValueError):
            parse_line("GET /")

    def test_lines(self):
        self.assertEqual(len(parse_lines(["::1 GET / 200 17", "", "::1 GET /a 404 0"])), 2)
