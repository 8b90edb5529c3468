import unittest

from rates import parse_percent


class Hidden(unittest.TestCase):
    def test_out_of_range(self):
        for text, number in (("-1 %", "-1"), ("100.5%", "100.5"), ("250", "250")):
            with self.assertRaises(ValueError) as caught:
                parse_percent(text)
            self.assertIn(f"percent out of range: {number}", str(caught.exception))

    def test_the_ends_belong_to_it(self):
        self.assertEqual(parse_percent("0"), 0)
        self.assertEqual(parse_percent("100 %"), 100)

    def test_what_is_no_number(self):
        with self.assertRaises(ValueError):
            parse_percent("much")
