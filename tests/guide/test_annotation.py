"""The page annotation.md: the whole circle from tags over corrected masks to a better model."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tagseg.predict.render import mask_image
from tests.guide.commands import commands, run_command

# A small network, long enough to learn what the corrected masks show.
SETTINGS = [
    "model.backbone=test_resnet",
    "model.pretrained=false",
    "model.width=16",
    "transforms.crop=48",
    "transforms.scale=[0.8, 1.5]",
    "training.epochs=40",
    "training.batch_size=8",
    "training.warmup_steps=0",
    "training.lr=0.003",
    "training.precision=fp32",
    "inference.size=48",
]


def correct(folder: Path) -> None:
    """Play the person: replace the masks of masks.zip by the ground truth, and export them without images."""
    shutil.unpack_archive(folder / "masks.zip", folder / "cvat")
    shutil.rmtree(folder / "cvat" / "JPEGImages")
    shutil.rmtree(folder / "cvat" / "SegmentationObject")
    for path in (folder / "cvat" / "SegmentationClass").iterdir():
        with Image.open(folder / "masks" / path.name) as mask:
            corrected = np.array(mask)
        corrected[:2] = 255  # what the person did not decide
        # CVAT writes colors, not indices.
        mask_image(corrected).convert("RGB").save(path)
    shutil.make_archive(str(folder / "corrected"), "zip", folder / "cvat")


@pytest.mark.slow
def test_corrected_masks_train_a_better_model(reader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (reader_folder / "photos.csv").read_text().splitlines()
    (reader_folder / "val").mkdir()
    (reader_folder / "photos.csv").write_text("\n".join(rows[:31]) + "\n")
    (reader_folder / "val.csv").write_text("\n".join([rows[0], *rows[31:]]) + "\n")
    for row in rows[31:]:
        image = row.partition(",")[0]
        (reader_folder / "photos" / image).rename(reader_folder / "val" / image)
    for command in commands("annotation"):
        if "corrected.zip" in command and not (reader_folder / "corrected.zip").exists():
            correct(reader_folder)
        settings = [f"--set={setting}" for setting in SETTINGS] if command.startswith("tagseg train-masks") else []
        run_command(command, monkeypatch, *settings)
    before, after = (json.loads((reader_folder / name / "evaluation.json").read_text()) for name in ("before", "after"))
    assert before["images"] == after["images"] == 10
    for protocol in ("predicted-tags", "true-tags"):
        ious = [result["protocols"][protocol]["mean"]["iou"] for result in (before, after)]
        assert ious[1] > ious[0] + 0.05, (protocol, ious)
    assert json.loads((reader_folder / "evaluation" / "evaluation.json").read_text())["images"] == 30
