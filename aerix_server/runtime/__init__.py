"""One request from its prompt to its outcome: route, turn loop, context, calls. No LSP and no disk log here."""
