import json
from pathlib import Path

import jsonschema
import pytest
from pydantic import ValidationError

from tagseg.predict.index import PredictionIndex, RunRecord
from tagseg.predict.predictor import Predictor
from tagseg.predict.writer import write_predictions
from tests.predict.conftest import Pixels
from tools.schemas import PREDICTIONS_SCHEMA


def test_output_fits_the_schema(predictor: Predictor, folder: Path, tmp_path: Path) -> None:
    stream = predictor.predict_many(folder, tags={"a": ["dog"], "b": ["cat", "dog"], "c": [], "d": ["cat"]})
    content = json.loads(write_predictions(stream, tmp_path / "out").read_text())
    jsonschema.Draft202012Validator(json.loads(PREDICTIONS_SCHEMA.read_text())).validate(content)
    assert content["version"] == 1
    assert content["complete"]
    assert content["protocol"] == "true-tags"
    assert [image["tags"] for image in content["images"]] == [["dog"], ["cat", "dog"], [], ["cat"]]
    shared = {"model", "settings", "protocol", "crf"}
    assert shared <= content.keys()
    assert all(not shared & image.keys() for image in content["images"])


def test_records_read_back_as_they_were_written(predictor: Predictor, image: Pixels, tmp_path: Path) -> None:
    text = write_predictions([predictor.predict(image)], tmp_path / "out").read_text()
    index = PredictionIndex.model_validate_json(text)
    assert index.model_dump_json(indent=2) + "\n" == text
    assert index.run == RunRecord.of(predictor.predict(image))
    with pytest.raises(ValidationError):
        PredictionIndex.model_validate_json(text.replace('"version": 1', '"version": 2'))
