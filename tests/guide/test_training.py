from pathlib import Path

import pytest

import tagseg
from tests.guide.commands import commands, run_command
from tests.training.small_run import SETTINGS


@pytest.mark.slow
def test_commands_train_from_weights_and_from_models(reader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = [f"--set={setting}" for setting in (*SETTINGS, "training.epochs=2") if "pretrained" not in setting]
    for command in commands("training"):
        # Random weights in place of a download.
        pretrained = () if "model.pretrained" in command else ("--set=model.pretrained=false",)
        run_command(command, monkeypatch, *short, *pretrained, "--workers=0")
    backbones = {run.name: tagseg.load(run).description["backbone"] for run in (reader_folder / "runs").iterdir()}
    assert backbones["from-default"] == "tf_efficientnet_lite0"
    assert backbones["first"] == backbones["more"] == "test_resnet"
