"""Settings: one typed tree with a default for each key, and the bounds that no setting moves."""
