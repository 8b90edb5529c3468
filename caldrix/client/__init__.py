"""The client of a pool: it knows frames and messages, and nothing of the daemon or the engine."""
