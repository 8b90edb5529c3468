"""The `aerix` command: a client of the server like any editor."""
