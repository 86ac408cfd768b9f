"""Prediction and pseudo labels on a Ray cluster of two nodes on this machine, one of which is killed."""

import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pyarrow import parquet

import tagseg
from tagseg._ray import check_ray
from tagseg.errors import ConfigError
from tagseg.predict.settings import InferenceSettings
from tests.predict.conftest import KEEP_ALL, wave_image

COUNT = 96  # six parts
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("address", ["nowhere", "host:port", "127.0.0.1:99999", ":6379", "ray://head:10001"])
def test_wrong_address_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of a Ray cluster; name auto, local or HOST:PORT"):
        check_ray(address)


def test_address_without_a_cluster_is_refused_at_once(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ConfigError, match=f"no Ray cluster answers at {address} .Connection refused."):
        tagseg.predict_files("photos", tmp_path / "out", ray=address)
    with pytest.raises(ConfigError, match="no Ray cluster answers at 127"):
        tagseg.write_pseudo_labels("shapes:4", tmp_path / "out", ray=address)
    assert not (tmp_path / "out").exists()


def test_missing_ray_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tagseg._ray.find_spec", lambda _: None)
    with pytest.raises(
        ConfigError, match=r"needs Ray, which is not installed; install it with: pip install 'tagseg\[r"
    ):
        check_ray("local")


def test_workers_need_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the number of workers is for a cluster; name one with ray="):
        tagseg.predict_files("photos", tmp_path / "out", workers=2)


@pytest.fixture(scope="module")
def model() -> tagseg.Predictor:
    torch.manual_seed(0)
    network = tagseg.build_model("resnet18", ["cat", "dog"]).eval()
    return tagseg.Predictor(network, KEEP_ALL, device="cpu", precision="float32")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ray") / "photos"
    folder.mkdir()
    for number in range(COUNT):
        Image.fromarray(wave_image(96, 96, seed=number)).save(folder / f"{number:03}.png")
    return folder


def start_cluster() -> Any:
    """Start the head of a cluster without what tests do not need: Ray gives it 30 seconds, few on a busy machine."""
    from ray.cluster_utils import Cluster

    options = {"num_cpus": 1, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    for _ in range(2):
        with suppress(Exception):
            return Cluster(initialize_head=True, head_node_args=options)
    return Cluster(initialize_head=True, head_node_args=options)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_enable_worker_prestart", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
        nodes = start_cluster()
        yield nodes
        nodes.shutdown()


def predict_plainly(model: tagseg.Predictor, photos: Path) -> dict[str, Any]:
    return {prediction.name: prediction.mask for prediction in model.predict_many(photos)}


@pytest.mark.slow
def test_each_image_is_predicted_once_though_a_node_is_killed(
    cluster: Any, model: tagseg.Predictor, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    node, out = cluster.add_node(num_cpus=1, include_log_monitor=False), tmp_path / "out"
    killed: list[int] = []

    def kill() -> None:
        while not list(out.glob("*.parquet")):
            time.sleep(0.02)
        cluster.remove_node(node, allow_graceful=False)
        killed.append(len(list(out.glob("*.parquet"))))

    killer = Thread(target=kill)
    killer.start()
    job = tagseg.predict_files(photos, out, model=model, format="parquet", ray=cluster.address, progress=True)
    killer.join()
    assert killed[0] < 6, "the node was killed when all was done"
    assert job["complete"]
    rows = [row for file in out.glob("*.parquet") for row in parquet.read_table(file).to_pylist()]
    assert Counter(row["name"] for row in rows) == Counter(f"{number:03}" for number in range(COUNT))
    expected = predict_plainly(model, photos)
    for row in rows:
        (tmp_path / "mask.png").write_bytes(row["mask"]["bytes"])
        assert np.array_equal(np.array(Image.open(tmp_path / "mask.png")), expected[row["name"]])
    parts = {f"predictions-0000{number}-of-00006.parquet" for number in range(6)}
    assert {path.name for path in out.glob("[!.]*")} == {"job.json", *parts}
    assert not list(out.glob(".attempts*"))
    output = capfd.readouterr()
    assert output.out == ""
    assert "raylet" not in output.err


@pytest.mark.slow
def test_pseudo_labels_are_those_of_the_plain_command(cluster: Any, tmp_path: Path) -> None:
    network = tagseg.build_model("test_resnet", tagseg.DataSource("shapes:20").open().classes, width=16).eval()
    model = tagseg.Predictor(network, InferenceSettings(size="native"), device="cpu", precision="float32")
    plain = tagseg.write_pseudo_labels("shapes:20", tmp_path / "plain", model=model)
    first = tmp_path / "plain" / "SegmentationClass"
    second = tmp_path / "ray" / "SegmentationClass"
    assert tagseg.write_pseudo_labels("shapes:20", tmp_path / "ray", model=model, ray=cluster.address) == plain
    assert {path.name: path.read_bytes() for path in second.iterdir()} == {
        path.name: path.read_bytes() for path in first.iterdir()
    }
