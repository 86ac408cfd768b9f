"""Report of a run: one HTML file with its images, curves, metrics and configuration."""

from tagseg.report.page import write_page

__all__ = ["write_page"]
