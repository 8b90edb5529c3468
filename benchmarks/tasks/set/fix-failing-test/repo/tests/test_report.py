import unittest

from entries import read_entries
from report import report

LOG = ["# March", "2024-03-04 1h30m website", "2024-03-04 45m support", "2024-03-05 20m website", ""]


class Report(unittest.TestCase):
    def test_projects_are_summed(self):
        self.assertEqual(report(read_entries(LOG)), ["website: 1h50m", "support: 45m"])
