"""Masks, which only evaluation reads."""

import builtins
import io
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import tagseg
from tagseg.data import DataError, DataSource, ImageDataset, shapes
from tests.data.small_datasets import (
    image_bytes,
    write_coco,
    write_image,
    write_mask,
    write_text,
    write_voc,
    write_zip,
)


def reachable(root: object, visited: set[int] | None = None) -> Iterator[object]:
    """Yield all objects that can be reached through attributes and containers."""
    visited = set() if visited is None else visited
    if id(root) in visited:
        return
    visited.add(id(root))
    yield root
    parts: list[object] = list(getattr(root, "__dict__", {}).values())
    if isinstance(root, dict):
        parts += [*root, *root.values()]
    elif isinstance(root, list | tuple | set | frozenset):
        parts += root
    for part in parts:
        yield from reachable(part, visited)


def write_table_with_masks(root: Path) -> Path:
    masks = {name: write_mask(root / "tmp" / f"{name}.png", value).read_bytes() for name, value in (("a", 1), ("b", 2))}
    members = {f"images/{name}.webp": image_bytes(suffix="webp") for name in masks}
    write_zip(root / "t.zip", members | {f"masks/{name}.png": data for name, data in masks.items()})
    return write_text(root / "t.csv", "image,labels\na.webp,cat\nb.webp,dog\n")


def content(dataset: ImageDataset) -> list[object]:
    return [
        dataset.image_ids,
        dataset.classes,
        dataset.labels.tolist(),
        [dataset[i][0].tolist() for i in range(len(dataset))],
    ]


def test_masks_are_found_beside_the_table_in_its_zip_and_in_named_folders(tmp_path: Path) -> None:
    table = write_table_with_masks(tmp_path)
    ground_truth = DataSource(table).open_masks()
    assert list(ground_truth) == list(DataSource(table).open().image_ids) == ["a", "b"]
    assert ground_truth.classes == ("cat", "dog")
    assert np.array_equal(ground_truth["b"], np.full((8, 12), 2, np.uint8))
    write_mask(tmp_path / "other" / "a.png", 255)
    assert list(DataSource(table, masks=tmp_path / "other").open_masks()) == ["a"]
    write_image(tmp_path / "loose" / "a.png")
    write_mask(tmp_path / "loose" / "masks" / "a.png", 1)
    loose = DataSource(write_text(tmp_path / "loose" / "t.csv", "a.png,cat\n")).open_masks()
    assert np.unique(loose["a"]).tolist() == [1]


def test_mask_dataset_is_a_mapping_that_can_be_pickled(tmp_path: Path) -> None:
    ground_truth = DataSource(write_table_with_masks(tmp_path)).open_masks()
    assert len(ground_truth) == 2
    assert "a" in ground_truth
    assert "z" not in ground_truth
    assert np.array_equal(pickle.loads(pickle.dumps(ground_truth))["a"], ground_truth["a"])
    for path in ("shapes:2", write_voc(tmp_path), write_coco(tmp_path, [])):
        built_in = DataSource(path).open_masks()
        assert len(pickle.loads(pickle.dumps(built_in))) == len(built_in)


def test_invalid_mask_is_an_error_with_its_name(tmp_path: Path) -> None:
    table = write_text(tmp_path / "t.csv", "a.png,cat\n")
    write_image(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"t\.csv: no masks were found; name their folder or zip with masks="):
        DataSource(table).open_masks()
    write_mask(tmp_path / "masks" / "a.png", 4)
    with pytest.raises(DataError, match=r"a\.png: has the value 4, but the classes only reach 1"):
        DataSource(table).open_masks()["a"]
    write_image(tmp_path / "masks" / "a.png")
    with pytest.raises(DataError, match=r"masks/a\.png: is not a mask \(mode RGB\); save one value"):
        DataSource(table).open_masks()["a"]
    write_text(tmp_path / "masks" / "a.png", "broken")
    with pytest.raises(DataError, match=r"masks/a\.png: is not a mask that can be read"):
        DataSource(table).open_masks()["a"]


def test_training_never_opens_a_mask_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    voc = write_voc(tmp_path / "voc")
    loose = write_text(tmp_path / "loose" / "t.csv", "a.png,cat\nb.png,dog\n")
    for name in "ab":
        write_image(tmp_path / "loose" / f"{name}.png")
        write_mask(tmp_path / "loose" / "masks" / f"{name}.png", 1)
    opened: list[str] = []

    def checked_open(file: object, *args: object, **options: object) -> object:
        opened.append(str(file))
        assert "SegmentationClass" not in str(file)
        assert "masks" not in str(file)
        return real_open(file, *args, **options)  # type: ignore[call-overload]

    real_open = builtins.open
    monkeypatch.setattr(builtins, "open", checked_open)
    monkeypatch.setattr(io, "open", checked_open)
    for source in (voc, loose):
        dataset = DataSource(source).open()
        content(dataset)
        tagseg.check(source)
    assert any(name.endswith("b.png") for name in opened)


def test_dataset_does_not_depend_on_masks(tmp_path: Path) -> None:
    table = write_table_with_masks(tmp_path)
    voc = write_voc(tmp_path / "voc")
    before = [content(DataSource(table).open()), content(DataSource(voc).open()), tagseg.check(table).to_json()]
    members = {f"images/{name}.webp": image_bytes(suffix="webp") for name in "ab"}
    (tmp_path / "t.zip").unlink()
    write_zip(tmp_path / "again.zip", members | {"masks/a.png": b"corrupt"})
    for mask in (voc / "VOCdevkit/VOC2012/SegmentationClass").iterdir():
        mask.unlink()
    images = tmp_path / "again.zip"
    after = [
        content(DataSource(table, images=images).open()),
        content(DataSource(voc).open()),
        tagseg.check(DataSource(table, images=images)).to_json(),
    ]
    assert after == before


def test_no_mask_can_be_reached_from_a_dataset(tmp_path: Path) -> None:
    rectangle = {"id": 1, "image_id": 7, "category_id": 3, "area": 9, "segmentation": [[0, 0, 6, 0, 6, 6]]}
    datasets = [
        DataSource(write_table_with_masks(tmp_path)).open(),
        DataSource(write_voc(tmp_path / "voc")).open(),
        DataSource(write_coco(tmp_path / "coco", [rectangle])).open(),
        shapes(3),
    ]
    for dataset in datasets:
        dataset[0]
        parts = list(reachable(dataset))
        arrays = [part for part in parts if isinstance(part, np.ndarray | torch.Tensor)]
        assert [array is dataset.labels for array in arrays] == [True]
        texts = [os.fspath(part) for part in parts if isinstance(part, str | Path)]
        assert not [text for text in texts if "masks" in text or "Segmentation" in text or text.endswith(".mat")]
        assert not [part for part in parts if "segmentation" in str(type(part)).lower()]
