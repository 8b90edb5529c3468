import unittest

from links import links


class Links(unittest.TestCase):
    def test_a_page_in_the_middle(self):
        self.assertEqual(len(links(list(range(30)), 2, 10)), 2)
