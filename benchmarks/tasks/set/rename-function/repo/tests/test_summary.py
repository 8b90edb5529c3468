import unittest

from access.summary import errors, largest

LINES = ["::1 GET / 200 17", "broken", "::1 GET /a 404 90"]


class Summary(unittest.TestCase):
    def test_errors(self):
        self.assertEqual(errors([LINES[0], LINES[2]]), {"/a": 1})

    def test_the_largest(self):
        self.assertEqual(largest(LINES).path, "/a")
        self.assertIsNone(largest([]))
