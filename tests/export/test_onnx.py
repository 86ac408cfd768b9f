"""Exported models: ONNX Runtime and torch.export give torch's scores and masks; files of others are refused."""

import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import tagseg
from tagseg.errors import ConfigError, WeightsError
from tagseg.export.onnx import write_export
from tagseg.models import ModelConfig, Network, build_network
from tagseg.predict.predictor import Predictor
from tagseg.predict.settings import default_settings
from tests.predict.conftest import wave_image

CLASSES = ("cat", "dog")
SIZES = ((64, 64), (33, 47), (97, 150), (224, 224), (130, 75))


class Exported(NamedTuple):
    predictor: Predictor
    file: Path


def build_supervised() -> Network:
    options = {"method": "supervised", "backbone": "test_resnet", "pretrained": False, "width": 16}
    return build_network(ModelConfig.parse(options), CLASSES)


NETWORKS: dict[str, Callable[[], Network]] = {
    "CNN": lambda: tagseg.build_model("test_resnet", CLASSES, width=16),
    "ViT": lambda: tagseg.build_model("test_vit", CLASSES, width=16),
    "CAM": lambda: tagseg.build_cam("test_resnet", CLASSES),
    "supervised": build_supervised,
}


@pytest.fixture(scope="module", params=NETWORKS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    torch.manual_seed(0)
    network = NETWORKS[request.param]()
    settings = replace(default_settings(network.config), thresholds=0.0, size=120)
    if request.param == "supervised":
        settings = replace(settings, temperature=1.7)
    predictor = Predictor(network, settings, device="cpu", precision="float32")
    return Exported(predictor, write_export(predictor, tmp_path_factory.mktemp("export") / "model.onnx"))


@pytest.mark.slow
def test_probabilities_and_labels_are_those_of_torch(exported: Exported) -> None:
    """At five sizes, in batches: probabilities to 1e-3 and 99.9 % of the labels."""
    network, settings = exported.predictor.engine.network.eval(), exported.predictor.settings
    session = onnxruntime.InferenceSession(exported.file.read_bytes(), providers=["CPUExecutionProvider"])
    for index, (height, width) in enumerate(SIZES):
        images = torch.from_numpy(np.stack([wave_image(height, width, seed) for seed in range(1 + index % 3)]))
        images = images.permute(0, 3, 1, 2).float() / 255
        with torch.inference_mode():
            expected = network(network.normalize(images))
            if settings.temperature != 1:
                logits = expected.logits / settings.temperature
                masks = torch.nn.functional.interpolate(
                    logits.softmax(1), (height, width), mode="bilinear", align_corners=True
                )
                expected = expected._replace(masks=masks)
        scores, masks = session.run(["scores", "masks"], {"images": images.numpy()})
        assert scores.shape == (len(images), len(CLASSES))
        assert np.abs(masks - expected.masks.numpy()).max() < 1e-3
        assert (masks.argmax(1) == expected.masks.argmax(1).numpy()).mean() >= 0.999
        if settings.temperature == 1:
            assert np.abs(scores - expected.scores.sigmoid().numpy()).max() < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("tta", "crf"), [(False, False), (True, False), (True, True)])
def test_predictor_of_the_file_is_like_any_other(exported: Exported, tta: bool, crf: bool) -> None:
    loaded = tagseg.load(exported.file)
    assert loaded.classes == CLASSES
    assert loaded.settings == replace(exported.predictor.settings, thresholds=(0.0, 0.0))
    images = [wave_image(150, 97), wave_image(40, 20), wave_image(150, 97, seed=1)]
    for image, prediction in zip(images, loaded.predict_many(images, tta=tta, crf=crf, batch_size=2), strict=True):
        expected = exported.predictor.predict(image, tta=tta, crf=crf)
        assert np.abs(prediction.probabilities - expected.probabilities).max() < 1e-3
        assert (prediction.mask == expected.mask).mean() >= 0.999
        assert list(prediction.scores.values()) == pytest.approx(list(expected.scores.values()), abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("exported", ["CNN"], indirect=True)
def test_folder_is_made_and_files_of_a_killed_export_are_removed(exported: Exported, tmp_path: Path) -> None:
    write_export(exported.predictor, tmp_path / "new" / "folder" / "model.pt2")
    left, other = (tmp_path / name for name in ("model.onnx.0a1b2c3d.part", "other.onnx.0a1b2c3d.part"))
    left.touch()
    other.touch()
    file = write_export(exported.predictor, tmp_path / "model.onnx")
    assert sorted(tmp_path.iterdir()) == [file, tmp_path / "new", other]


@pytest.mark.slow
@pytest.mark.parametrize("exported", ["CNN"], indirect=True)
def test_metadata_names_classes_and_settings_and_no_place(exported: Exported) -> None:
    model = onnx.load(exported.file)
    onnx.checker.check_model(model)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(metadata["tagseg_model"])["class_names"] == list(CLASSES)
    settings = json.loads(metadata["inference"])
    assert settings["thresholds"] == [0.0, 0.0]
    assert settings["size"] == 120
    dimensions = [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert dimensions == ["batch", 3, "height", "width"]
    content = exported.file.read_bytes()
    for place in (Path(tagseg.__file__).parent, Path(sys.prefix), exported.file.parent):
        assert str(place).encode() not in content


@pytest.mark.slow
@pytest.mark.parametrize("exported", ["CNN"], indirect=True)
def test_files_of_others_are_refused_in_one_line(exported: Exported, tmp_path: Path) -> None:
    def refused(change: Callable[[onnx.ModelProto], object]) -> str:
        model = onnx.load(exported.file)
        change(model)
        (tmp_path / "other.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(WeightsError, match="other.onnx") as error:
            tagseg.load(tmp_path / "other.onnx").predict(wave_image(64, 64))
        assert "\n" not in str(error.value)
        return str(error.value)

    def move_weights(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../../etc/passwd")

    def add_node(**fields: str) -> Callable[[onnx.ModelProto], object]:
        return lambda model: model.graph.node.append(onnx.helper.make_node(inputs=["images"], outputs=["x"], **fields))

    def add_branch(model: onnx.ModelProto) -> None:
        body = onnx.helper.make_graph([], "body", [], [])
        model.graph.node.append(onnx.helper.make_node("Loop", ["images"], ["x"], body=body))

    def add_class(model: onnx.ModelProto) -> None:
        (entry,) = (entry for entry in model.metadata_props if entry.key == "tagseg_model")
        entry.value = json.dumps({**json.loads(entry.value), "class_names": ["cat", "dog", "bird"]})

    def add_class_and_threshold(model: onnx.ModelProto) -> None:
        add_class(model)
        (entry,) = (entry for entry in model.metadata_props if entry.key == "inference")
        entry.value = json.dumps({**json.loads(entry.value), "thresholds": [0.0, 0.0, 0.0]})

    assert "its weights are in other files" in refused(move_weights)
    assert "operators of com.microsoft" in refused(add_node(op_type="EPContext", domain="com.microsoft"))
    assert "it has a Loop" in refused(add_branch)
    assert "has no tagseg configuration" in refused(lambda model: model.ClearField("metadata_props"))
    assert "got 2 thresholds for 3 classes" in refused(add_class)
    assert "is not that of 3 classes" in refused(add_class_and_threshold)
    assert "ONNX Runtime cannot read it" in refused(add_node(op_type="NoSuchOperator"))
    for name, content in (("text.onnx", b"no model"), ("half.onnx", exported.file.read_bytes()[:-1000])):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(WeightsError, match=f"{name} is not a readable ONNX file|{name} has no tagseg"):
            tagseg.load(tmp_path / name)


@pytest.mark.slow
@pytest.mark.parametrize("exported", ["CNN"], indirect=True)
def test_predictor_of_a_file_can_be_pickled(exported: Exported) -> None:
    """As it is for the workers of a cluster."""
    model, image = tagseg.load(exported.file), wave_image(64, 96)
    copied = pickle.loads(pickle.dumps(model))
    assert copied.predict(image).scores == model.predict(image).scores


@pytest.mark.slow
@pytest.mark.parametrize("exported", ["CNN"], indirect=True)
def test_what_an_onnx_file_cannot_do_is_said(exported: Exported, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="runs ONNX files on the CPU, not on cuda"):
        tagseg.load(exported.file, device="cuda")
    with pytest.raises(ConfigError, match="runs in float32"):
        tagseg.load(exported.file, precision="bfloat16")
    loaded = tagseg.load(exported.file)
    with pytest.raises(ConfigError, match="cannot be exported again"):
        tagseg.export_model(tmp_path / "again.onnx", model=loaded)
    with pytest.raises(ConfigError, match="no weights to save"):
        loaded.save_pretrained(tmp_path / "folder")


@pytest.mark.slow
def test_program_of_torch_export(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = NETWORKS["CNN"]().eval()
    file = tagseg.export_model(tmp_path / "model.pt2", model=Predictor(network, device="cpu"))
    metadata = {"tagseg_model": "", "inference": ""}
    program = torch.export.load(file, extra_files=metadata).module()
    for count, (height, width) in enumerate(SIZES[:3], 1):
        images = torch.rand(count, 3, height, width)
        with torch.inference_mode():
            scores, masks, _ = program(images)
            expected = network(network.normalize(images))
        assert torch.allclose(masks, expected.masks, atol=1e-5)
        assert torch.allclose(scores, expected.scores.sigmoid(), atol=1e-5)
    assert json.loads(metadata["tagseg_model"])["class_names"] == list(CLASSES)
    with pytest.raises(WeightsError, match="runs code in it, so tagseg does not"):
        tagseg.load(file)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("mine")
    with pytest.raises(ConfigError, match="model.onnx: exists; choose another name, or replace it by overwrite=True"):
        tagseg.export_model(tmp_path / "model.onnx")
    with pytest.raises(ConfigError, match="unknown suffix of an export '.pth'; known: .onnx, .pt2"):
        tagseg.export_model(tmp_path / "model.pth")
    assert (tmp_path / "model.onnx").read_text() == "mine"
