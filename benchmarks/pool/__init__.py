"""`python -m benchmarks.pool`: what caldrix costs and gains, as ratios within one run, beside a llama-server."""
