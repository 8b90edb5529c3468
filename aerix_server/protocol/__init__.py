"""What crosses the wire and what the log holds. Imports nothing of ours; the clients' types are made from it."""
