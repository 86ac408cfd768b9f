"""`tagseg doctor`: what it says about this machine, that it names nobody, and that it fails when a self-test does."""

import getpass
import json
import platform
import re
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tagseg import doctor
from tagseg.cli import app
from tagseg.errors import ConfigError
from tagseg.refine.pamr import refine_plain

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def diagnosis() -> doctor.Diagnosis:
    return doctor.diagnose("cpu")


def assert_names_nobody(text: str, *folders: Path) -> None:
    for folder in (Path.home(), Path.cwd(), ROOT, Path(sys.prefix), *folders):
        assert str(folder) not in text
    assert platform.node() not in text
    assert getpass.getuser() not in re.findall(r"\w+", text)


def test_self_tests_pass_on_a_cpu(diagnosis: doctor.Diagnosis) -> None:
    assert [test.name for test in diagnosis.self_tests] == ["PAMR", "dense CRF", "default model"]
    assert diagnosis.passed, diagnosis.to_markdown()
    assert {path.name: path.runs for path in diagnosis.fast_paths}["torch.compile (long training)"] == "not compiled"
    assert {"python", "tagseg", "torch"} <= diagnosis.versions.keys()


def test_text_has_every_part(diagnosis: doctor.Diagnosis) -> None:
    text = diagnosis.to_markdown()
    for name in (
        *diagnosis.versions,
        *(path.name for path in diagnosis.fast_paths),
        *diagnosis.extras,
        *(test.name for test in diagnosis.self_tests),
    ):
        assert name in text


def test_command_prints_the_same_as_json(diagnosis: doctor.Diagnosis) -> None:
    result = CliRunner().invoke(app, ["doctor", "--device", "cpu", "--json"])
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert printed == json.loads(diagnosis.to_json())
    assert all(test["passed"] for test in printed["self_tests"])


def test_a_failed_self_test_says_what_to_do_and_names_no_path(
    diagnosis: doctor.Diagnosis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "_PAMR", tuple(0.5 + value for value in doctor._PAMR))
    monkeypatch.setattr(doctor, "_PHOTO", tmp_path / "missing.jpg")
    result = CliRunner().invoke(app, ["doctor", "--device", "cpu"])
    assert result.exit_code == 1
    assert "PAMR failed: install tagseg into a new environment" in result.output
    assert "default model failed: " in result.output
    assert "dense CRF failed" not in result.output
    assert "DataError in tagseg." in result.output
    assert_names_nobody(result.output + diagnosis.to_markdown() + diagnosis.to_json(), tmp_path)


def test_a_dependency_that_cannot_be_imported_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tagseg.doctor", None)
    result = CliRunner().invoke(app, ["doctor"])
    assert isinstance(result.exception, ConfigError)
    assert "install tagseg into a new environment" in str(result.exception)


def test_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert doctor.EXTRAS.keys() == project["optional-dependencies"].keys() - {"dev"}


def test_golden_values_are_those_of_the_plain_function() -> None:
    image, masks = doctor._scene()
    refined = refine_plain(
        (image / 255)[None], masks[None], None, dilations=(1, 2, 4, 8, 12, 24), iterations=10, kernel="reference"
    )
    assert torch.allclose(refined.flatten()[:: doctor._STEP], torch.tensor(doctor._PAMR), atol=1e-4)
