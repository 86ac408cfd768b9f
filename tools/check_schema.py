"""Write docs/schemas/check.schema.json, the schema of `tagseg check --json`: python -m tools.check_schema"""

from pathlib import Path

from tagseg.data import CheckReport

if __name__ == "__main__":
    path = Path(__file__).parents[1] / "docs" / "schemas" / "check.schema.json"
    path.write_text(CheckReport.schema_text(), encoding="utf-8")
