import unittest

from ranges import clamp, overlap


class Overlap(unittest.TestCase):
    def test_ranges_that_share_an_end(self):
        self.assertTrue(overlap((1, 3), (3, 5)))

    def test_ranges_apart(self):
        self.assertFalse(overlap((1, 3), (4, 5)))
        self.assertFalse(overlap((4, 5), (1, 3)))


class Clamp(unittest.TestCase):
    def test_below(self):
        self.assertEqual(clamp(-1, 0, 10), 0)

    def test_above(self):
        self.assertEqual(clamp(11, 0, 10), 10)

    def test_inside(self):
        self.assertEqual(clamp(4, 0, 10), 4)


if __name__ == "__main__":
    unittest.main()
