"""A trial of coding agents: small repositories, a request and a check each. Run by `python -m benchmarks.tasks`."""
