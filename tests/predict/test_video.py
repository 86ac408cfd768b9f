from pathlib import Path

import numpy as np
import pytest

from tagseg.data import DataError
from tagseg.predict.predictor import Predictor
from tagseg.predict.sources import find_sources
from tagseg.predict.video import VideoSource
from tagseg.predict.writer import write_predictions

cv2 = pytest.importorskip("cv2")


@pytest.fixture
def video(tmp_path: Path) -> Path:
    """Write two and a half seconds of ten frames each, which get brighter."""
    file = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(file), cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 48))
    for number in range(25):
        writer.write(np.full((48, 64, 3), (0, 0, 10 * number), np.uint8))  # BGR
    writer.release()
    return file


def test_frames_are_taken_every_few_seconds(predictor: Predictor, video: Path) -> None:
    stream = predictor.predict_many(video, every=0.5)
    predictions = list(stream)
    assert [prediction.name for prediction in predictions] == [f"clip-00000{i / 2:.3f}s" for i in range(5)]
    assert [prediction.path for prediction in predictions] == [f"{video}#t={i / 2:g}" for i in range(5)]
    red = [float(prediction.image[..., 0].mean()) for prediction in predictions]
    assert red == pytest.approx([0, 50, 100, 150, 200], abs=8)
    assert len(stream) == 5


def test_no_frame_is_taken_twice(video: Path) -> None:
    (source,) = find_sources(video, every=0.02).images
    assert isinstance(source, VideoSource)
    assert [frame.path for frame in source.frames()] == [f"{video}#t={i / 10:g}" for i in range(25)]


def test_frames_are_decoded_one_by_one(video: Path) -> None:
    (source,) = find_sources(video, every=0.1).images
    assert isinstance(source, VideoSource)
    frames = source.frames()
    assert next(frames).name == "clip-000000.000s"
    frames.close()


def test_shards_of_a_video_have_no_common_frame(predictor: Predictor, video: Path) -> None:
    shards = [[p.name for p in predictor.predict_many(video, every=0.5, shard=(i, 2))] for i in (1, 2)]
    assert not set(shards[0]) & set(shards[1])
    assert sorted(shards[0] + shards[1]) == [p.name for p in predictor.predict_many(video, every=0.5)]


def test_all_frames_have_the_tags_of_the_video(predictor: Predictor, video: Path) -> None:
    predictions = predictor.predict_many(video, every=1.0, tags={"clip.avi": ["dog"]})
    assert {prediction.allowed_classes for prediction in predictions} == {("dog",)}


def test_videos_need_a_time_between_frames(predictor: Predictor, video: Path) -> None:
    with pytest.raises(DataError, match="clip.avi: is a video; name the seconds between its frames with every="):
        predictor.predict(video)
    with pytest.raises(DataError, match="must be more than 0, got 0"):
        predictor.predict_many(video, every=0)


def test_damaged_video_is_named_or_skipped(predictor: Predictor, video: Path) -> None:
    video.write_bytes(b"no video")
    with pytest.raises(DataError, match="clip.avi: is not a video .* skip such videos by skip_bad=True"):
        list(predictor.predict_many(video, every=1))
    stream = predictor.predict_many(video, every=1, skip_bad=True)
    assert list(stream) == []
    assert "clip.avi" in stream.skipped[0]


def test_damaged_video_is_something_to_do(
    predictor: Predictor, video: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    video.write_bytes(b"no video")
    with pytest.raises(DataError, match="clip.avi: is not a video"):
        write_predictions(predictor.predict_many(video, every=1), tmp_path / "out", progress=True)
    assert "Nothing to do" not in capfd.readouterr().err
