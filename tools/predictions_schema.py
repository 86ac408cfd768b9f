"""Write docs/schemas/predictions.schema.json: python -m tools.predictions_schema."""

import json
from pathlib import Path

from tagseg.predict.index import index_schema

PATH = Path(__file__).parents[1] / "docs" / "schemas" / "predictions.schema.json"

if __name__ == "__main__":
    PATH.write_text(json.dumps(index_schema(), indent=2) + "\n", encoding="utf-8")
