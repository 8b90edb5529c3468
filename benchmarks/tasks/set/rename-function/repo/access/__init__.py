"""Reads the access logs of a web server."""
