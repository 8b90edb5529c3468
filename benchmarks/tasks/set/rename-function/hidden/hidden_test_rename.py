import io
import unittest

from access import follow, parser, summary


class Hidden(unittest.TestCase):
    def test_the_new_name(self):
        self.assertEqual(parser.parse_record("::1 GET / 200 17").size, 17)
        self.assertFalse(hasattr(parser, "parse_line"))

    def test_the_longer_name_stays(self):
        self.assertEqual(len(parser.parse_lines(["::1 GET / 200 17"])), 1)
        self.assertFalse(hasattr(parser, "parse_records"))

    def test_the_users(self):
        records = follow.follow(io.StringIO("::1 GET /x 200 1\n"))
        self.assertEqual(next(records).path, "/x")
        self.assertEqual(summary.largest(["::1 GET /y 200 5", "no record"]).path, "/y")
