"""The command line."""

import argparse


def parse(words):
    parser = argparse.ArgumentParser(prog="webshare")
    parser.add_argument("--root", default=".", help="the folder that is shared")
    parser.add_argument("--port", type=int, default=8090, help="the port to listen on")
    parser.add_argument("--bind", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--read-only", action="store_true", help="refuse uploads")
    return parser.parse_args(words)
