"""The one room that knows LSP: frames, handlers of a few lines, and what each client is sent. Nothing imports it."""
