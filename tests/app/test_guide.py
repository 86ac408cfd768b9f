"""The guide's page about `tagseg app`."""

import re
import shlex

import typer.main
from typer.core import TyperGroup

from tagseg.app.guard import MAX_UPLOAD_BYTES
from tagseg.app.predict_api import MAX_SIZE, MAX_UPLOAD_MEGAPIXELS
from tagseg.cli import app
from tests.app.requests import request
from tests.guide.commands import GUIDE, commands

TEXT = (GUIDE / "app.md").read_text(encoding="utf-8")


def test_commands_have_known_options() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for line in commands("app"):
        group.commands["app"].make_context("app", shlex.split(line)[2:])


def test_fields_and_limits_are_those_of_the_server(url: str) -> None:
    description = request(url, "GET", "/openapi.json").json()
    (form,) = (schema for name, schema in description["components"]["schemas"].items() if name.startswith("Body"))
    rows = re.findall(r"^\| (`.+?) \|", TEXT, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == set(form["properties"])
    for number in (MAX_SIZE, f"{MAX_UPLOAD_BYTES // 2**20} MiB", f"{MAX_UPLOAD_MEGAPIXELS} megapixels"):
        assert str(number) in TEXT
