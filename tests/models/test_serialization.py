from pathlib import Path

import tagseg
from tagseg.models.serialization import read_notes


def test_class_names_and_notes_are_saved(tmp_path: Path) -> None:
    model = tagseg.build_model("resnet18", ["dog", "sofa"])
    tagseg.save_model(model, tmp_path / "model.safetensors", notes={"threshold": "0.1"})
    assert tagseg.load_model(tmp_path / "model.safetensors").config.class_names == ("dog", "sofa")
    assert read_notes(tmp_path / "model.safetensors") == {"threshold": "0.1"}
    assert tagseg.build_cam("resnet18", 2).config.class_names == ("class 1", "class 2")
