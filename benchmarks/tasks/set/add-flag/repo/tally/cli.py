"""The command line of tally."""

import argparse

from tally.words import count_words


def build_parser():
    parser = argparse.ArgumentParser(prog="tally", description="Counts the words of a text.")
    parser.add_argument("file", help="the text to count")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="how many words to show (default 10)")
    parser.add_argument("--min-length", type=int, default=1, metavar="N", help="leave out shorter words")
    return parser


def main(arguments):
    """Print the most frequent words; gives the exit code."""
    options = build_parser().parse_args(arguments)
    with open(options.file, encoding="utf-8") as file:
        text = file.read()
    counts = count_words(text, options.min_length)
    for word, count in counts.most_common(options.top):
        print(f"{count}\t{word}")
    return 0
