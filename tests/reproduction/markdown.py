"""Parsing of Markdown tables."""


def cells(markdown: str, label: str) -> list[str]:
    """Return the cells of the first row whose label starts with a text, without the label."""
    row = next(line for line in markdown.splitlines() if line.startswith(f"| {label}"))
    return [cell.strip() for cell in row.strip("|").split("|")][1:]
