from pathlib import Path

import pytest

import tagseg
from tagseg.models.serialization import read_notes


def test_class_names_and_notes_are_saved(tmp_path: Path) -> None:
    model = tagseg.build_model("resnet18", ["dog", "sofa"])
    tagseg.save_model(model, tmp_path / "model.safetensors", notes={"threshold": "0.1"})
    assert tagseg.load_model(tmp_path / "model.safetensors").config.class_names == ("dog", "sofa")
    assert read_notes(tmp_path / "model.safetensors") == {"threshold": "0.1"}
    assert tagseg.build_cam("resnet18", 2).config.class_names == ("class 1", "class 2")


def test_file_that_cannot_be_written_is_named_in_one_line(tmp_path: Path) -> None:
    network = tagseg.build_model("resnet18", 1, width=16)
    with pytest.raises(tagseg.ConfigError, match=r"model.safetensors: cannot be written"):
        tagseg.save_model(network, tmp_path / "nowhere" / "model.safetensors")
