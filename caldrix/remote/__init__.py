"""Members that an existing engine serves over HTTP: `openai:BASE_URL#MODEL`."""
