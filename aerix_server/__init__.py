"""The Aerix server: one backend that editors, the terminal client and scripts speak LSP to."""

__version__ = "0.1.0"
