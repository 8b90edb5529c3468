import unittest

from export import export

ROWS = [["name", "n"], ["tea", "12"]]


class Export(unittest.TestCase):
    def test_markdown(self):
        self.assertEqual(export(ROWS, "markdown"), "| name | n  |\n|------|----|\n| tea  | 12 |")

    def test_html(self):
        self.assertEqual(export([["<a>"]], "html"), "<table><tr><td>&lt;a&gt;</td></tr></table>")

    def test_another_format(self):
        with self.assertRaises(ValueError):
            export(ROWS, "pdf")
