"""Benchmarks behind `tagseg bench`: each compares tagseg with what it replaces, side by side on one machine."""
