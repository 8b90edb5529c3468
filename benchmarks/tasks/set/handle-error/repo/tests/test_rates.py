import unittest

from prices import discounted
from rates import format_percent, parse_percent


class Rates(unittest.TestCase):
    def test_with_and_without_a_sign(self):
        self.assertEqual(parse_percent("12.5 %"), 12.5)
        self.assertEqual(parse_percent("7"), 7)

    def test_format(self):
        self.assertEqual(format_percent(7.0), "7 %")

    def test_discount(self):
        self.assertEqual(discounted(1000, "10 %"), 900)
