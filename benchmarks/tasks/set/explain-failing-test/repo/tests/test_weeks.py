import unittest

from weeks import weekday


class Weeks(unittest.TestCase):
    def test_days(self):
        self.assertEqual(weekday(2001, 1, 1), "Monday")
        self.assertEqual(weekday(2001, 12, 31), "Monday")
        self.assertEqual(weekday(2001, 3, 1), "Thursday")
