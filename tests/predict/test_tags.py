from pathlib import Path

import numpy as np
import pytest

from tagseg.data import DataError
from tagseg.predict.predictor import Predictor
from tagseg.predict.sources import find_sources
from tagseg.predict.tags import TagsInput, tags_of_images
from tests.predict.conftest import Pixels

CLASSES = ("cat", "dog")


def tags_of(folder: Path | str, tags: TagsInput) -> list[tuple[str, ...]]:
    return tags_of_images(tags, find_sources(folder).images, CLASSES)


def test_each_image_is_limited_to_its_tags(predictor: Predictor, folder: Path) -> None:
    tags = {"a.png": ["dog"], "b": ["dog", "cat"], "cats/c": [], "d.png": ["cat"]}
    predictions = list(predictor.predict_many(folder, tags=tags, batch_size=3))
    assert [prediction.allowed_classes for prediction in predictions] == [("dog",), ("cat", "dog"), (), ("cat",)]
    for prediction in predictions:
        expected = predictor.predict(prediction.path or "", tags=prediction.allowed_classes)
        assert np.array_equal(prediction.mask, expected.mask)
        assert prediction.protocol == "true-tags"


def test_rows_name_images_by_any_end_of_their_path(folder: Path) -> None:
    table = folder.parent / "tags.csv"
    table.write_text(f"image,labels\n{folder / 'a.png'},dog\nphotos/b.jpg,cat;dog\ncats/c,\nd.png,cat\nother.png,dog\n")
    expected = [("dog",), ("cat", "dog"), (), ("cat",)]
    assert tags_of(folder, table) == tags_of(folder, str(table)) == expected
    jsonl = folder.parent / "tags.jsonl"
    jsonl.write_text('{"file_name": "x/e.png", "labels": ["dog"]}\n{"file_name": "f.jpg", "labels": []}\n')
    assert tags_of(folder.parent / "more.zip", jsonl) == [("dog",), ()]


def test_tags_of_images_in_memory_are_a_list(predictor: Predictor, image: Pixels) -> None:
    predictions = predictor.predict_many([image, image], tags=[["cat"], ["dog"]])
    assert [prediction.allowed_classes for prediction in predictions] == [("cat",), ("dog",)]
    with pytest.raises(DataError, match="tags are given for 1 images, but there are 2"):
        predictor.predict_many([image, image], tags=[["cat"]])


def test_urls_are_tagged_by_their_name() -> None:
    urls = ["https://example.org/a/dog.jpg?size=3", "https://example.org/cat.jpg"]
    tags = {"dog.jpg": ["dog"], "https://example.org/cat.jpg": ["cat"]}
    assert tags_of_images(tags, find_sources(urls).images, CLASSES) == [("dog",), ("cat",)]


def test_wrong_tags_are_refused_by_name(folder: Path) -> None:
    table = folder.parent / "tags.csv"
    table.write_text("image,labels\na.png,dog\nb.jpg,dogs\n")
    with pytest.raises(DataError, match=r"tags.csv:3: unknown class 'dogs'.*Did you mean 'dog'"):
        tags_of(folder, table)
    table.write_text("image,labels\na.png,dog\nd.png,dog\n")
    with pytest.raises(DataError, match=r"tags.csv: has no tags for .*b.jpg and 1 more; add their rows"):
        tags_of(folder, table)
    (folder / "d.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"tags.csv:3: could be .*cats/d.png or .*photos/d.png; write more of its path"):
        tags_of(folder, table)
    with pytest.raises(DataError, match="tags.txt: is not a table of tags; name a file ending in .csv"):
        tags_of(folder, folder.parent / "tags.txt")
    with pytest.raises(ValueError, match="unknown tag 'dogs'"):
        tags_of(folder / "a.png", [["dogs"]])
