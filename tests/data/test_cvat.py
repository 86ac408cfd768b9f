import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tagseg.data import DataError, DataSource
from tagseg.data.source import AnnotationFiles
from tests.data.small_datasets import write_image, write_text

COLORS = {"background": (0, 0, 0), "dog": (0, 60, 0), "cat": (250, 50, 83), "ignored": (9, 9, 9)}


def write_cvat(root: Path, *, images: bool = True) -> Path:
    """Write a/one with a dog, a cat and ignored pixels, two with background, and three, which nobody has annotated."""
    lines = [f"{name}:{red},{green},{blue}::" for name, (red, green, blue) in COLORS.items()]
    write_text(root / "labelmap.txt", "\n".join(["# label:color_rgb:parts:actions", *lines]))
    write_text(root / "ImageSets" / "Segmentation" / "default.txt", "a/one\ntwo\nthree\n")
    mask = np.zeros((8, 12, 3), np.uint8)
    mask[1:3], mask[4:6], mask[7] = COLORS["dog"], COLORS["cat"], COLORS["ignored"]
    for name, pixels in (("a/one", mask), ("two", np.zeros_like(mask))):
        (root / "SegmentationClass" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / "SegmentationClass" / f"{name}.png")
    for name in ("a/one", "two", "three") if images else ():
        write_image(root / "JPEGImages" / f"{name}.jpg")
    return root


def test_folder_and_zip_give_the_same_dataset(tmp_path: Path) -> None:
    folder = write_cvat(tmp_path / "folder")
    archive = Path(shutil.make_archive(str(tmp_path / "export"), "zip", folder))
    assert DataSource(folder).detect() == AnnotationFiles("cvat", folder)  # although it has the folders of VOC
    assert DataSource(archive).detect() == AnnotationFiles("cvat", archive)
    for path in (folder, archive):
        data, masks = DataSource(path).open(), DataSource(path).open_masks()
        assert data.classes == masks.classes == ("dog", "cat")
        assert data.image_ids == tuple(masks) == ("a/one", "two")
        assert data.labels.tolist() == [[1, 1], [0, 0]]
        assert masks["a/one"][:, 0].tolist() == [0, 1, 1, 0, 2, 2, 0, 255]
        assert data[0][0].shape == (3, 8, 12)
        assert DataSource(path).open_masks(["cat", "dog"])["a/one"][1, 0] == 2


def test_images_may_be_elsewhere_and_masks_may_have_a_palette(tmp_path: Path) -> None:
    folder = write_cvat(tmp_path / "folder", images=False)
    write_image(tmp_path / "photos" / "a" / "one.png")
    write_image(tmp_path / "photos" / "two.png")
    path = folder / "SegmentationClass" / "a" / "one.png"
    expected = DataSource(folder).open_masks()["a/one"]
    Image.open(path).quantize(4).save(path)
    assert Image.open(path).mode == "P"
    data, masks = DataSource(folder, images=tmp_path / "photos").open(), DataSource(folder).open_masks()
    assert data.image_ids == ("a/one", "two")
    assert np.array_equal(masks["a/one"], expected)
    with pytest.raises(DataError, match=r"SegmentationClass/a/one\.png: no image 'a/one' and 1 more was found; name"):
        DataSource(folder).open()


def test_subset_is_named(tmp_path: Path) -> None:
    folder = write_cvat(tmp_path)
    write_text(folder / "ImageSets" / "Segmentation" / "val.txt", "two\n")
    assert DataSource(folder, split="val").open().image_ids == ("two",)
    with pytest.raises(DataError, match="holds the splits default, val; name one of them with split="):
        DataSource(folder).open()
    with pytest.raises(ValueError, match="unknown split 'test'; known: default, val"):
        DataSource(folder, split="test").open()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("background:0,0,0::\ndog:0,60,0::", r"one\.png: has the color 9,9,9, which labelmap\.txt does not name"),
        ("dog:0,60::", r"labelmap\.txt:1: is not a class and its color; correct the line: name:red,green,blue::"),
        ("dog:0,60,256::", r"labelmap\.txt:1: is not a class and its color"),
        ("dog:0,60,0::\n\ndog:1,1,1::", r"labelmap\.txt:3: the class is in another line too"),
        ("dog:0,60,0::\ncat:0,60,0::", r"labelmap\.txt:2: the color is in another line too"),
        ("background:0,0,0::", r"labelmap\.txt: names no class"),
    ],
)
def test_errors_name_the_line_or_the_mask(text: str, message: str, tmp_path: Path) -> None:
    write_text(write_cvat(tmp_path) / "labelmap.txt", text)
    with pytest.raises(DataError, match=message):
        DataSource(tmp_path).open()


def test_damaged_mask_is_a_data_error(tmp_path: Path) -> None:
    (write_cvat(tmp_path) / "SegmentationClass" / "two.png").write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"two\.png: is not a mask that can be read; export it again"):
        DataSource(tmp_path).open()
