import unittest

from tally.words import count_words


class Words(unittest.TestCase):
    def test_counts(self):
        self.assertEqual(count_words("a b a"), {"a": 2, "b": 1})

    def test_short_words_are_left_out(self):
        self.assertEqual(count_words("to be or not", 3), {"not": 1})
