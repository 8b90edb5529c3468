"""Caldrix: a daemon that keeps models loaded and serves constrained generations over a Unix socket."""

__version__ = "0.1.0"
