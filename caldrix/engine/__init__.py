"""The engine: one thread per member, no sockets, no event loop."""
