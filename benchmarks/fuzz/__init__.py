"""Fuzzing a pool: mutated messages and mutated bytes against the real process. Run it by `benchmarks.fuzz_frames`."""
