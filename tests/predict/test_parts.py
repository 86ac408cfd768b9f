import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from datasets import Image as ImageFeature, load_dataset
from PIL import Image
from pyarrow import parquet

import tagseg
from tagseg.api import predict_files
from tagseg.errors import ConfigError, DataError, TagsegError
from tagseg.predict.parts import write_parts
from tagseg.predict.prediction import OutputFiles
from tagseg.predict.predictor import Predictor
from tagseg.predict.sources import find_sources
from tests.predict.conftest import KEEP_ALL, wave_image
from tests.predict.test_folder import Counting

COUNT, PART = 40, 16


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts") / "photos"
    folder.mkdir()
    for number in range(COUNT):
        Image.fromarray(wave_image(32, 32 + 8 * (number % 3), seed=number)).save(folder / f"{number:02}.png")
    return folder


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    torch.manual_seed(0)
    network = tagseg.build_model("test_resnet", ["cat", "dog"], width=16).eval()
    return Predictor(network, KEEP_ALL, device="cpu", precision="float32")


@pytest.fixture
def counting(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(predictor, monkeypatch)


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(out.glob("*.parquet")) for row in parquet.read_table(file).to_pylist()]


def write(photos: Path, out: Path, predictor: Predictor, **options: Any) -> dict[str, Any]:
    return predict_files(photos, out, model=predictor, **{"format": "parquet", **options})


def test_rows_hold_the_predictions(predictor: Predictor, photos: Path, tmp_path: Path) -> None:
    job = write(photos, tmp_path / "out", predictor, confidence=True)
    assert (job["images"], job["part_size"], job["complete"]) == (COUNT, PART, True)
    assert len(list((tmp_path / "out").glob("predictions-0000?-of-00003.parquet"))) == 3
    rows = rows_of(tmp_path / "out")
    predictions = list(predictor.predict_many(photos))
    assert [row["name"] for row in rows] == [prediction.name for prediction in predictions]
    for row, prediction in zip(rows, predictions, strict=True):
        mask, confidence = (np.array(Image.open(io.BytesIO(row[c]["bytes"]))) for c in ("mask", "confidence_image"))
        assert np.array_equal(mask, prediction.mask)
        assert np.array_equal(confidence, np.array(prediction.confidence_image()))
        summary = prediction.summary()
        assert (row["width"], row["height"]) == tuple(summary["size"].values())
        assert row["scores"] == pytest.approx(list(prediction.scores.values()))
        assert [entry["box"] for entry in row["classes"]] == [entry["box"] for entry in summary["classes"]]
        assert row["uncertainty"] == pytest.approx(prediction.uncertainty)
        assert row["path"] == prediction.path


def test_files_are_those_of_predictions_json(predictor: Predictor, photos: Path, tmp_path: Path) -> None:
    predict_files(photos, tmp_path / "plain", model=predictor)
    stream = predictor.predict_many(photos)
    write_parts(stream, tmp_path / "parts", format="png", files=OutputFiles())
    plain, parts = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir() if path.suffix in (".png", ".jpg")}
        for name in ("plain", "parts")
    )
    assert len(plain) == 2 * COUNT + 1  # with the legend
    assert parts == plain
    row = rows_of(tmp_path / "parts")[0]
    assert row["mask"] == {"bytes": None, "path": "00_mask.png"}
    assert row["overlay"] == {"bytes": None, "path": "00_overlay.jpg"}


def test_datasets_of_hugging_face_loads_the_masks(predictor: Predictor, photos: Path, tmp_path: Path) -> None:
    write(photos, tmp_path / "out", predictor)
    dataset = load_dataset("parquet", data_files=str(tmp_path / "out" / "*.parquet"), cache_dir=str(tmp_path / "cache"))
    rows = dataset["train"].cast_column("mask", ImageFeature())
    for row, prediction in zip(rows, predictor.predict_many(photos), strict=True):
        assert np.array_equal(row["mask"], prediction.mask)


def test_job_is_resumed_by_parts(predictor: Predictor, photos: Path, tmp_path: Path, counting: Counting) -> None:
    out = tmp_path / "out"
    write(photos, out, predictor)
    files = {path: path.read_bytes() for path in out.glob("*.parquet")}
    lost = out / "predictions-00001-of-00003.parquet"
    lost.unlink()
    (out / "predictions-00001-of-00003.parquet.0a1b2c3d.part").write_bytes(b"half")
    counting.names.clear()
    with pytest.raises(ConfigError, match="has the predictions of an earlier call; continue it by skip_existing=True"):
        write(photos, out, predictor)
    assert write(photos, out, predictor, skip_existing=True)["complete"]
    assert counting.names == [f"{number:02}" for number in range(PART, 2 * PART)]
    assert {path: path.read_bytes() for path in out.glob("*.parquet")} == files
    assert not list(out.glob("*.part"))


def test_job_of_other_images_or_settings_is_refused(predictor: Predictor, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    some = [photos / "00.png", photos / "01.png"]
    predict_files(some, out, model=predictor, format="parquet")
    with pytest.raises(ConfigError, match=r"other images or settings \(digest"):
        predict_files(some[::-1], out, model=predictor, format="parquet", skip_existing=True)
    with pytest.raises(ConfigError, match="other images or settings .*threshold"):
        predict_files(some, out, model=predictor, format="parquet", skip_existing=True, threshold=0.5)
    with pytest.raises(ConfigError, match="predictions in parts are not replaced"):
        predict_files(some, out, model=predictor, format="parquet", overwrite=True)
    (out / "job.json").write_text("{}")
    with pytest.raises(ConfigError, match="job.json: was not written by this version of tagseg, or is damaged"):
        predict_files(some, out, model=predictor, format="parquet", skip_existing=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("")
    with pytest.raises(ConfigError, match="mine exists and has no job.json; choose another folder"):
        predict_files(some, tmp_path / "mine", model=predictor, format="parquet")


def test_damaged_part_is_named(predictor: Predictor, photos: Path, tmp_path: Path) -> None:
    write(photos, tmp_path / "out", predictor)
    (tmp_path / "out" / "predictions-00002-of-00003.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match="00002-of-00003.parquet: is damaged .* delete it"):
        write(photos, tmp_path / "out", predictor, skip_existing=True)


def test_bad_image_stops_the_job_or_is_listed(predictor: Predictor, photos: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"")
    with pytest.raises(DataError, match="bad.png.*skip such images by skip_bad=True"):
        predict_files([photos, bad], tmp_path / "out", model=predictor, format="parquet")
    options: dict[str, Any] = {"format": "parquet", "skip_existing": True, "skip_bad": True}
    job = predict_files([photos, bad], tmp_path / "out", model=predictor, **options)
    assert len(job["skipped"]) == 1
    assert len(rows_of(tmp_path / "out")) == COUNT
    assert predict_files([photos, bad], tmp_path / "out", model=predictor, **options) == job


def test_masks_are_limited_to_tags(predictor: Predictor, photos: Path, tmp_path: Path) -> None:
    tags = {f"{number:02}": ["dog"] if number % 2 else [] for number in range(COUNT)}
    write(photos, tmp_path / "out", predictor, tags=tags)
    rows = rows_of(tmp_path / "out")
    assert {row["name"]: row["tags"] for row in rows} == tags
    assert all({entry["name"] for entry in row["classes"]} <= set(row["tags"]) for row in rows)


@pytest.mark.parametrize("image", [wave_image(32, 32), Image.new("RGB", (32, 32))])
def test_images_in_memory_are_refused(predictor: Predictor, image: Any, tmp_path: Path) -> None:
    with pytest.raises(TagsegError, match="cannot be divided into parts"):
        predict_files(image, tmp_path / "out", model=predictor, format="parquet")


def test_images_of_shards_have_names_of_their_own(photos: Path, tmp_path: Path) -> None:
    for shard in ("train-0", "train-1"):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as tar:
            tar.add(photos / "00.png", "000.png")
            tar.add(photos / "00.png", "000.json")
        cells = [{"bytes": (photos / name).read_bytes(), "path": None} for name in ("00.png", "01.png")]
        parquet.write_table(pa.table({"image": cells}), tmp_path / f"{shard}.parquet")
    tars, tables = (find_sources(str(tmp_path / f"train-*.{kind}")).images for kind in ("tar", "parquet"))
    assert [image.name for image in tars] == ["train-0/000", "train-1/000"]
    assert [image.name for image in tables] == [f"train-{shard}/00000{row}" for shard in (0, 1) for row in (0, 1)]
    assert all(image.path and image.path.startswith(str(tmp_path)) for image in (*tars, *tables))


def test_job_file_is_json_that_lists_no_images(predictor: Predictor, photos: Path, tmp_path: Path) -> None:
    job = write(photos, tmp_path / "out", predictor)
    assert json.loads((tmp_path / "out" / "job.json").read_text()) == job
    assert job["classes"] == ["cat", "dog"]
    assert job["files"] == ["mask"]
    assert "00.png" not in (tmp_path / "out" / "job.json").read_text()
