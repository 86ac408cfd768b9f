"""A run for eyes: one HTML file with its pictures, curves and numbers."""

from tagseg.reporting.page import write_report

__all__ = ["write_report"]
