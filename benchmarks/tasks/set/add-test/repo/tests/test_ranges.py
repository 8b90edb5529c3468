import unittest

from ranges import overlap


class Overlap(unittest.TestCase):
    def test_ranges_that_share_an_end(self):
        self.assertTrue(overlap((1, 3), (3, 5)))

    def test_ranges_apart(self):
        self.assertFalse(overlap((1, 3), (4, 5)))
        self.assertFalse(overlap((4, 5), (1, 3)))


if __name__ == "__main__":
    unittest.main()
