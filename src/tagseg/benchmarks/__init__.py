"""Benchmarks: `tagseg bench` measures the fast paths beside what they replace."""
