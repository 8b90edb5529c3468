import unittest

from scale import scale


class Scale(unittest.TestCase):
    def test_the_middle(self):
        self.assertEqual(scale(5, (0, 10), (0, 100)), 50)
