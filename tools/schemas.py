"""Write docs/schemas/, the JSON schemas of predictions.json and `tagseg check --json`: python -m tools.schemas."""

import json
from pathlib import Path
from typing import Any

from tagseg.data import CheckReport
from tagseg.predict.index import PredictionIndex

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"
CHECK_SCHEMA = FOLDER / "check.schema.json"
PREDICTIONS_SCHEMA = FOLDER / "predictions.schema.json"


def schemas() -> dict[Path, str]:
    """Content of each schema by its file."""
    return {
        CHECK_SCHEMA: _dump(CheckReport.model_json_schema(mode="serialization")),
        PREDICTIONS_SCHEMA: _dump(PredictionIndex.model_json_schema()),
    }


def _dump(schema: dict[str, Any]) -> str:
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2) + "\n"


if __name__ == "__main__":
    for file, text in schemas().items():
        file.write_text(text, encoding="utf-8")
