"""Count the bytes that torch operations hold at once: exact, and the same on every machine."""

from tagseg.benchmarks.timing import PeakBytes

__all__ = ["PeakBytes"]
