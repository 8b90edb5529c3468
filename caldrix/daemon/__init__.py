"""The pool daemon: sockets, contexts and members. It drives the engine and never calls its own client."""
