"""The version, in a file of its own so that building the package need not import it."""

__version__ = "0.1.0"
