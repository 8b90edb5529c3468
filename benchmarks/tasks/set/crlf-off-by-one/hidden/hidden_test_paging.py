import unittest

from links import links
from paging import page, page_count


class Hidden(unittest.TestCase):
    def test_counts(self):
        counted = [page_count(range(number), 10) for number in (0, 1, 9, 10, 11, 25, 30)]
        self.assertEqual(counted, [0, 1, 1, 1, 2, 3, 3])

    def test_the_last_page(self):
        self.assertEqual(page(list(range(25)), 3, 10), [20, 21, 22, 23, 24])
        with self.assertRaises(IndexError):
            page(list(range(25)), 4, 10)
        with self.assertRaises(ValueError):
            page_count([1], 0)

    def test_links(self):
        self.assertEqual(len(links(list(range(25)), 2, 10)), 2)
