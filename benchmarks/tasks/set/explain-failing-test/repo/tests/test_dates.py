import unittest

from dates import day_of_year, days_in_month, is_leap_year


class Years(unittest.TestCase):
    def test_year_2023(self):
        self.assertFalse(is_leap_year(2023))

    def test_year_2024(self):
        self.assertTrue(is_leap_year(2024))

    def test_year_1900(self):
        self.assertFalse(is_leap_year(1900))

    def test_year_2000(self):
        self.assertTrue(is_leap_year(2000))


class Days(unittest.TestCase):
    def test_days_of_february(self):
        self.assertEqual(days_in_month(2023, 2), 28)
        self.assertEqual(days_in_month(2024, 2), 29)

    def test_last_day_of_the_year(self):
        self.assertEqual(day_of_year(2023, 12, 31), 365)
