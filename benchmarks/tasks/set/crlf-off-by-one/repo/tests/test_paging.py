import unittest

from paging import page, page_count


class Paging(unittest.TestCase):
    def test_full_pages(self):
        self.assertEqual(page_count(range(20), 10), 2)
        self.assertEqual(page(list(range(20)), 2, 10), list(range(10, 20)))

    def test_no_items(self):
        self.assertEqual(page_count([], 10), 0)

    def test_pages_that_do_not_exist(self):
        with self.assertRaises(IndexError):
            page([1, 2], 3, 1)
