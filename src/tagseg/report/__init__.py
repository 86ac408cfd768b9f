"""A run for eyes: one HTML file with its images, curves and numbers."""

from tagseg.report.page import write_page

__all__ = ["write_page"]
