"""The `caldrix` command line: the only place that knows both the daemon and its client."""
