"""Keeps a copy of a folder of a web server."""
