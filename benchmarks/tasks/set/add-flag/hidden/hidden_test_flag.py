import subprocess
import sys
import unittest
from pathlib import Path


def tally(*words):
    done = subprocess.run([sys.executable, "-m", "tally", *words], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return dict(reversed(line.split("\t")) for line in done.stdout.splitlines())


class Hidden(unittest.TestCase):
    def test_without_the_flag_nothing_changes(self):
        self.assertEqual(
            tally("notes.txt"), {"The": "2", "the": "1", "cat": "1", "saw": "2", "dog": "2", "nothing": "1"}
        )

    def test_with_the_flag_case_does_not_count(self):
        self.assertEqual(
            tally("--ignore-case", "notes.txt"), {"the": "3", "cat": "1", "saw": "2", "dog": "2", "nothing": "1"}
        )

    def test_with_other_options(self):
        Path("mixed.txt").write_text("AB ab Ab c C", encoding="utf-8")
        self.assertEqual(tally("mixed.txt", "--min-length", "2", "--ignore-case", "--top", "1"), {"ab": "3"})

    def test_the_help_tells_of_it(self):
        done = subprocess.run([sys.executable, "-m", "tally", "--help"], capture_output=True, text=True, timeout=30)
        self.assertIn("--ignore-case", done.stdout)
