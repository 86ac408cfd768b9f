import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagseg.errors import ConfigError, DataError
from tagseg.predict.folder import PredictionFolder
from tagseg.predict.index import ImageRecord
from tagseg.predict.prediction import OutputFiles, Prediction
from tagseg.predict.predictor import Predictor
from tagseg.predict.render import draw_legend
from tagseg.predict.writer import write_predictions
from tests.predict.conftest import wave_image

NAMES = ["a", "b", "cats/c", "cats/d"]


class Counting:
    """Counts the images that a predictor predicts."""

    def __init__(self, predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        original = predictor._prediction

        def count(*arguments: Any) -> Prediction:
            prediction = original(*arguments)
            self.names.append(prediction.name)
            return prediction

        monkeypatch.setattr(predictor, "_prediction", count)


@pytest.fixture
def counting(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(predictor, monkeypatch)


def images_of(index: Path) -> list[str]:
    return [image["name"] for image in json.loads(index.read_text())["images"]]


def test_existing_predictions_are_kept(predictor: Predictor, folder: Path, tmp_path: Path, counting: Counting) -> None:
    out = tmp_path / "out"
    write_predictions(predictor.predict_many(folder / "b.jpg"), out)
    index = write_predictions(predictor.predict_many(folder), out, skip_existing=True)
    assert images_of(index) == NAMES
    assert counting.names == ["b", "a", "cats/c", "cats/d"]
    (out / "cats" / "c_mask.png").unlink()
    assert images_of(write_predictions(predictor.predict_many(folder), out, skip_existing=True)) == NAMES
    assert counting.names[4:] == ["cats/c"]
    assert not list(out.glob("*.journal"))


def test_images_of_later_calls_are_added(predictor: Predictor, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_predictions(predictor.predict_many(folder / "a.png"), out)
    assert images_of(write_predictions(predictor.predict_many(folder / "b.jpg"), out)) == ["b", "a"]


def test_predictions_among_the_images_are_not_predicted(
    predictor: Predictor, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "results").mkdir()
    (folder / "results" / "predictions.json").write_text("[]")  # of another tool
    for images, out in ((".", "."), (str(folder), "predictions"), ("**/*", "more")):
        index = write_predictions(predictor.predict_many(images), Path(out), overwrite=True)
        again = write_predictions(predictor.predict_many(images), Path(out), overwrite=True)
        assert len(images_of(again)) == len(images_of(index)) == len(NAMES)
    (folder / "dog_mask.png").write_bytes((folder / "a.png").read_bytes())
    assert len(predictor.predict_many(".")) == len(NAMES) + 1
    # An image that is named is predicted, whatever it is.
    assert images_of(write_predictions(predictor.predict_many("a_mask.png"), tmp_path / "out")) == ["a_mask"]


def test_predictions_are_replaced_only_on_request(predictor: Predictor, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_predictions(predictor.predict_many(folder), out)
    before = (out / "a_mask.png").stat().st_mtime_ns
    with pytest.raises(ConfigError, match="a_mask.png: exists; keep it by skip_existing=True, replace it by overwrite"):
        write_predictions(predictor.predict_many(folder), out)
    assert (out / "a_mask.png").stat().st_mtime_ns == before
    assert images_of(write_predictions(predictor.predict_many(folder), out, overwrite=True)) == NAMES
    assert (out / "a_mask.png").stat().st_mtime_ns != before


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_of_others_are_never_overwritten(
    predictor: Predictor, folder: Path, tmp_path: Path, counting: Counting, overwrite: bool
) -> None:
    out = tmp_path / "out"
    (out / "cats").mkdir(parents=True)
    (out / "cats" / "d_mask.png").write_text("mine")
    with pytest.raises(ConfigError, match=r"d_mask.png: exists, and no predictions.json .* choose another folder"):
        write_predictions(predictor.predict_many(folder), out, overwrite=overwrite, skip_existing=True)
    assert (out / "cats" / "d_mask.png").read_text() == "mine"
    assert counting.names == []  # nothing is predicted before


def test_legend_of_others_is_never_overwritten(
    predictor: Predictor, folder: Path, tmp_path: Path, counting: Counting
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "legend.png").write_text("mine")
    with pytest.raises(ConfigError, match=r"legend.png: exists, and no predictions.json .* choose another folder"):
        write_predictions(predictor.predict_many(folder), out, overwrite=True)
    assert counting.names == []
    index = write_predictions(predictor.predict_many(folder), out, files=OutputFiles(legend=True))
    assert json.loads(index.read_text())["legend"] is None
    assert (out / "legend.png").read_text() == "mine"


def test_legend_has_the_classes_of_all_shards(predictor: Predictor, folder: Path, tmp_path: Path) -> None:
    tags = {"a": ["cat"], "b": ["dog"], "c": [], "d": []}
    for number, classes in ((1, ["cat"]), (2, ["cat", "dog"])):
        index = write_predictions(predictor.predict_many(folder, tags=tags, shard=(number, 2)), tmp_path / "out")
        assert json.loads(index.read_text())["legend"] == "legend.png"
        expected = draw_legend(list(enumerate(classes, start=1)))
        assert np.array_equal(np.array(Image.open(tmp_path / "out" / "legend.png")), np.array(expected))


def test_missing_kinds_of_files_are_added(
    predictor: Predictor, folder: Path, tmp_path: Path, counting: Counting
) -> None:
    image, kinds = folder / "a.png", []
    for files in (OutputFiles(overlay=False), OutputFiles(), OutputFiles(overlay=False, confidence=True)):
        index = write_predictions(predictor.predict_many(image), tmp_path / "out", files=files, skip_existing=True)
        kinds.append(list(json.loads(index.read_text())["images"][0]["files"]))
    assert kinds == [["mask"], ["mask", "overlay"], ["mask", "overlay", "confidence"]]
    counting.names.clear()
    for files in (OutputFiles(alpha=0.2), OutputFiles(overlay=False)):
        write_predictions(predictor.predict_many(image), tmp_path / "out", files=files, skip_existing=True)
    assert counting.names == []


def test_unwanted_files_of_a_replaced_prediction_are_removed(
    predictor: Predictor, folder: Path, tmp_path: Path
) -> None:
    write_predictions(predictor.predict_many(folder / "a.png"), tmp_path / "out", files=OutputFiles(confidence=True))
    stream = predictor.predict_many(folder / "a.png", crf=True)
    index = write_predictions(stream, tmp_path / "out", files=OutputFiles(overlay=False), overwrite=True)
    assert {path.name for path in index.parent.glob("[!.]*")} == {"a_mask.png", "legend.png", "predictions.json"}
    assert json.loads(index.read_text())["legend"] == "legend.png"  # still ours


def test_foreign_index_is_not_overwritten(predictor: Predictor, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "predictions.json").write_text('{"mine": 1}')
    with pytest.raises(ConfigError, match=r"predictions.json: was not written by this version of tagseg"):
        write_predictions(predictor.predict_many(folder), tmp_path, overwrite=True)
    assert (tmp_path / "predictions.json").read_text() == '{"mine": 1}'


def test_other_settings_need_another_folder_or_replace_all(predictor: Predictor, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_predictions(predictor.predict_many(folder), out)
    for skip_existing in (False, True):
        with pytest.raises(
            ConfigError, match=r"other settings \(crf is false there, true here\); replace them by over"
        ):
            write_predictions(predictor.predict_many(folder, crf=True), out, skip_existing=skip_existing)
    with pytest.raises(ConfigError, match=r"lists b, which is not among these images, with other settings"):
        write_predictions(predictor.predict_many(folder / "a.png", crf=True), out, overwrite=True)
    index = write_predictions(predictor.predict_many(folder, crf=True), out, overwrite=True)
    assert images_of(index) == NAMES
    assert json.loads(index.read_text())["crf"]


def test_other_tags_or_another_file_of_the_name_are_not_kept(
    predictor: Predictor, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    image = folder / "a.png"
    write_predictions(predictor.predict_many(image, tags=[["cat"]]), out)
    with pytest.raises(ConfigError, match="a_mask.png: exists, with other tags; replace it by overwrite=True"):
        write_predictions(predictor.predict_many(image, tags=[["dog"]]), out, skip_existing=True)
    shutil.copy(image, tmp_path / "a.png")
    with pytest.raises(ConfigError, match=r"a_mask.png: exists, of .*photos/a.png; replace"):
        write_predictions(predictor.predict_many(tmp_path / "a.png", tags=[["cat"]]), out, skip_existing=True)
    index = write_predictions(predictor.predict_many(image, tags=[["dog"]]), out, skip_existing=True, overwrite=True)
    assert [entry["tags"] for entry in json.loads(index.read_text())["images"]] == [["dog"]]


def test_images_in_memory_are_predicted_again(predictor: Predictor, tmp_path: Path) -> None:
    write_predictions(predictor.predict_many([wave_image(40, 40)]), tmp_path)
    with pytest.raises(ConfigError, match="image-0001_mask.png: exists"):
        write_predictions(predictor.predict_many([wave_image(40, 40)]), tmp_path, skip_existing=True)


def test_shards_are_disjoint_and_merge(predictor: Predictor, folder: Path, tmp_path: Path, counting: Counting) -> None:
    out = tmp_path / "out"
    parts = [write_predictions(predictor.predict_many(folder, shard=(i, 3)), out) for i in (1, 2, 3)]
    assert [part.name for part in parts] == [f"predictions-{i}-of-3.json" for i in (1, 2, 3)]
    assert [images_of(part) for part in parts] == [["a", "cats/d"], ["b"], ["cats/c"]]
    counting.names.clear()
    index = write_predictions(predictor.predict_many(folder), out, skip_existing=True)
    assert images_of(index) == NAMES
    assert counting.names == []
    with pytest.raises(ConfigError, match="there is no shard 4 of 3"):
        predictor.predict_many(folder, shard=(4, 3))


def test_shards_have_the_same_settings_and_may_be_empty(
    predictor: Predictor, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image, out = folder / "a.png", tmp_path / "out"
    assert images_of(write_predictions(predictor.predict_many(image, shard=(2, 2)), out, progress=True)) == []
    assert capsys.readouterr().err == "Nothing to do: this part has no images\n"
    assert images_of(write_predictions(predictor.predict_many(image, shard=(1, 2)), out)) == ["a"]
    with pytest.raises(ConfigError, match="predictions-1-of-2.json lists predictions of other settings"):
        write_predictions(predictor.predict_many(folder, shard=(2, 2), crf=True), out, overwrite=True)


def test_failure_before_the_first_image_leaves_nothing(predictor: Predictor, folder: Path, tmp_path: Path) -> None:
    (folder / "a.png").write_bytes(b"")
    with pytest.raises(DataError, match="a.png"):
        write_predictions(predictor.predict_many(folder / "a.png"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("shard", [None, (1, 1)])
def test_killed_job_continues_without_loss(
    predictor: Predictor, folder: Path, tmp_path: Path, counting: Counting, shard: tuple[int, int] | None
) -> None:
    out, stream = tmp_path / "out", predictor.predict_many(folder, shard=shard)
    killed = PredictionFolder(out, stream.run, OutputFiles(), shard=shard)  # as far as a killed process came
    images = list(stream.planned_images())
    assert killed.plan(images) == 4
    for image, prediction in zip(images[:3], stream, strict=False):
        assert killed.start_image(image)
        (out / image.name).parent.mkdir(exist_ok=True)
        files = OutputFiles().names(image.name)
        killed.begin_image(files)
        prediction.save(out / files["mask"])
        if image.name != "cats/c":
            prediction.overlay().save(out / files["overlay"])
            killed.add(ImageRecord.of(prediction, image.name, files, stream.run))
    (journal,) = out.glob("*.journal")
    with journal.open("a") as file:
        file.write('{"image": {"na')  # a line that was cut
    assert not list(out.glob("*.json"))

    counting.names.clear()
    index = write_predictions(predictor.predict_many(folder, shard=shard), out, skip_existing=True)
    assert images_of(index) == NAMES
    assert counting.names == ["cats/c", "cats/d"]
    assert not list(out.glob("*.journal"))


def test_killed_replacement_can_be_repeated(predictor: Predictor, folder: Path, tmp_path: Path) -> None:
    write_predictions(predictor.predict_many(folder), tmp_path)
    stream = predictor.predict_many(folder, crf=True)
    PredictionFolder(tmp_path, stream.run, OutputFiles(), overwrite=True).plan(stream.planned_images())
    assert images_of(tmp_path / "predictions.json") == []
    index = write_predictions(stream, tmp_path, skip_existing=True)
    assert images_of(index) == NAMES
    assert json.loads(index.read_text())["crf"]


def test_job_that_an_error_stopped_continues(
    predictor: Predictor, folder: Path, tmp_path: Path, counting: Counting
) -> None:
    content = (folder / "cats" / "c.png").read_bytes()
    (folder / "cats" / "c.png").write_bytes(b"")
    with pytest.raises(DataError, match="c.png: .* or skip such images by skip_bad=True"):
        write_predictions(predictor.predict_many(folder, batch_size=1), tmp_path)
    stopped = json.loads((tmp_path / "predictions.json").read_text())
    assert ([image["name"] for image in stopped["images"]], stopped["complete"]) == (["a", "b"], False)
    (folder / "cats" / "c.png").write_bytes(content)
    counting.names.clear()
    index = write_predictions(predictor.predict_many(folder), tmp_path, skip_existing=True)
    assert images_of(index) == NAMES
    assert counting.names == ["cats/c", "cats/d"]
    assert json.loads(index.read_text())["complete"]
