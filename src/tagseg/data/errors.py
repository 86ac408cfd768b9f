"""The one error of this room."""


class DataError(ValueError):
    """Data that cannot be used; the message is one line: what is wrong, where, and what to do."""
