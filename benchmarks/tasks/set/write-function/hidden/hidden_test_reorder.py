import unittest

from items import Item, read_items
from stock import reorder


class Hidden(unittest.TestCase):
    def test_missing_items(self):
        self.assertEqual(reorder(read_items("stock.csv")), {"Tea": 6, "Sugar": 5})

    def test_exactly_the_minimum_is_enough(self):
        self.assertEqual(reorder([Item("a", 3, 3, 1), Item("b", 4, 3, 1)]), {})

    def test_nothing(self):
        self.assertEqual(reorder([]), {})
