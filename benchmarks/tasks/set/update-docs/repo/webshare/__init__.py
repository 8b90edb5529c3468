"""Shares a folder."""
