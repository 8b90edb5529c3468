import unittest

from items import Item
from stock import find, total_value

ITEMS = [Item("Tea", 4, 10, 350), Item("Coffee", 12, 10, 620)]


class Stock(unittest.TestCase):
    def test_value(self):
        self.assertEqual(total_value(ITEMS), 4 * 350 + 12 * 620)

    def test_find(self):
        self.assertEqual(find(ITEMS, "tea"), ITEMS[0])
        self.assertIsNone(find(ITEMS, "salt"))
