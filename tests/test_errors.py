import pickle

import pytest

from tagseg.errors import (
    ConfigError,
    DataError,
    Interrupted,
    TagsegError,
    WeightsError,
    first_line,
    printable,
    unknown_name,
)


def test_advice_names_arguments_in_python_and_options_on_the_command_line() -> None:
    error = DataError("a.csv: 3 {images} are missing", "name their folder with {images}, or use {skip_bad}")
    assert str(error) == "a.csv: 3 {images} are missing; name their folder with images=, or use skip_bad=True"
    assert error.for_cli() == "a.csv: 3 {images} are missing; name their folder with --images, or use --skip-bad"
    assert str(DataError("a.csv: is empty")) == DataError("a.csv: is empty").for_cli() == "a.csv: is empty"


@pytest.mark.parametrize("kind", [DataError, ConfigError, WeightsError, Interrupted])
def test_errors_come_back_from_worker_processes(kind: type[TagsegError]) -> None:
    error = pickle.loads(pickle.dumps(kind("a.png: cannot be read", "use {skip_bad}")))
    assert type(error) is kind
    assert error.for_cli() == "a.png: cannot be read; use --skip-bad"


def test_errors_about_arguments_are_value_errors() -> None:
    assert all(issubclass(kind, ValueError) for kind in (DataError, ConfigError, WeightsError))
    assert not issubclass(Interrupted, ValueError)


def test_unknown_name_gives_the_known_ones_and_the_nearest() -> None:
    error = unknown_name("backbone", "resnet5", ["vgg16", "resnet50"], more=" and others of timm", hidden=["resnext50"])
    assert str(error) == (
        "unknown backbone 'resnet5'; known: resnet50, vgg16 and others of timm. Did you mean 'resnet50'?"
    )
    assert "Did you mean 'resnext50'?" in str(unknown_name("backbone", "resnext5", ["vgg16"], hidden=["resnext50"]))
    assert str(unknown_name("gate", 3, ["none"])) == "unknown gate 3; known: none."


def test_errors_on_the_command_line_have_no_control_characters() -> None:
    error = DataError("a\x1b]0;title\x07\nb\x9b31m \u202e猫.png: is damaged", "replace it")
    assert error.for_cli() == r"a\x1b]0;title\x07 b\x9b31m \u202e猫.png: is damaged; replace it"
    assert printable("caf\udce9.png").isprintable()


def test_first_line_of_an_error_without_text_is_its_type() -> None:
    assert first_line(OSError("\nno file\nat all")) == "no file"
    assert first_line(KeyError()) == "KeyError"
