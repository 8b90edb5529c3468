"""Measurements with real models, run by hand; docs/benchmarks.md says how and what each figure means."""
