"""The page data.md: its commands read the same photos in every format."""

import csv
import json
import shutil
from pathlib import Path

import datasets
import pytest
import webdataset

from tests.guide.commands import commands, run_command
from tests.training.small_run import SETTINGS

datasets.disable_progress_bars()

# Classes of the photos, under names whose alphabetical order is the same: the values of masks stay right.
NAMES = {"cross": "bus", "disc": "car", "ring": "cat", "square": "dog", "star": "person", "triangle": "traffic light"}


@pytest.fixture
def formats_folder(reader_folder: Path) -> Path:
    """The reader's folder, with the photos in every format of the page."""
    with (reader_folder / "photos.csv").open() as file:
        rows = {row["image"]: [NAMES[label] for label in row["labels"].split(";")] for row in csv.DictReader(file)}
    names = list(NAMES.values())
    write_tables(reader_folder, rows)
    for image, labels in rows.items():
        for label in labels:
            (reader_folder / "folders" / label).mkdir(parents=True, exist_ok=True)
            shutil.copy(reader_folder / "photos" / image, reader_folder / "folders" / label / image)
    write_coco(reader_folder / "annotations.json", rows, names)
    write_voc(reader_folder / "VOCdevkit" / "VOC2012", reader_folder / "photos", rows)
    labels_feature = datasets.Sequence(datasets.ClassLabel(names=names))
    features = datasets.Features({"image": datasets.Image(), "labels": labels_feature})
    content = {
        "image": [str(reader_folder / "photos" / image) for image in rows],
        "labels": [[names.index(label) for label in labels] for labels in rows.values()],
    }
    dataset = datasets.Dataset.from_dict(content, features=features)
    splits = datasets.DatasetDict({"train": dataset, "test": dataset.select(range(4))})
    splits.save_to_disk(reader_folder / "saved")
    for split, part in splits.items():
        (reader_folder / "hub" / "data").mkdir(parents=True, exist_ok=True)
        part.to_parquet(reader_folder / "hub" / "data" / f"{split}-00000-of-00001.parquet")
    (reader_folder / "shards").mkdir()
    with webdataset.TarWriter(str(reader_folder / "shards" / "train-000000.tar")) as writer:
        for image, labels in rows.items():
            photo = (reader_folder / "photos" / image).read_bytes()
            writer.write({"__key__": Path(image).stem, "png": photo, "json": {"labels": labels}})
    return reader_folder


def write_tables(folder: Path, rows: dict[str, list[str]]) -> None:
    texts = {
        "photos.csv": ["image,labels", *(f"{image},{';'.join(labels)}" for image, labels in rows.items())],
        "tags.csv": ["filename,tags", *(f'{image},"{",".join(labels)}"' for image, labels in rows.items())],
        "words.csv": [
            "image,labels",
            *(f"{image},{' '.join(labels)}".replace("traffic light", "tram") for image, labels in rows.items()),
        ],
        "columns.csv": [
            ",".join(["filename", *NAMES.values()]),
            *(",".join([image, *(str(int(n in labels)) for n in NAMES.values())]) for image, labels in rows.items()),
        ],
        "photos.jsonl": [json.dumps({"file_name": image, "labels": labels}) for image, labels in rows.items()],
    }
    for name, lines in texts.items():
        (folder / name).write_text("\n".join(lines) + "\n")


def write_coco(path: Path, rows: dict[str, list[str]], names: list[str]) -> None:
    images = [{"id": i, "file_name": image, "width": 48, "height": 48} for i, image in enumerate(rows)]
    pairs = [(i, names.index(label)) for i, labels in enumerate(rows.values()) for label in labels]
    annotations = [{"image_id": image, "category_id": category, "segmentation": []} for image, category in pairs]
    categories = [{"id": i, "name": name} for i, name in enumerate(names)]
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))


def write_voc(voc: Path, photos: Path, rows: dict[str, list[str]]) -> None:
    for folder in ("JPEGImages", "Annotations", "ImageSets/Segmentation"):
        (voc / folder).mkdir(parents=True)
    for image, labels in rows.items():
        shutil.copy(photos / image, voc / "JPEGImages" / f"{Path(image).stem}.jpg")
        objects = "".join(f"<object><name>{label}</name></object>" for label in labels if label != "traffic light")
        (voc / "Annotations" / f"{Path(image).stem}.xml").write_text(f"<annotation>{objects}</annotation>")
    (voc / "ImageSets" / "Segmentation" / "train.txt").write_text("\n".join(Path(image).stem for image in rows))


@pytest.mark.slow
def test_commands(formats_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands("data"):
        settings = SETTINGS if command.startswith("tagseg train") else ()
        run_command(command, monkeypatch, *(f"--set={setting}" for setting in settings))
        if command.startswith("tagseg check"):
            assert "fit for training" in capsys.readouterr().out.splitlines()[-1]
    result = json.loads((formats_folder / "runs" / "vehicles" / "evaluation.json").read_text())
    assert result["images"] == 40
    config = json.loads((formats_folder / "runs" / "vehicles" / "config.json").read_text())
    assert config["classes"] == ["vehicle", "dog"]
    assert config["data"]["train"]["classes"] == ["vehicle=car|bus", "dog"]
