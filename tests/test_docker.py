"""The Dockerfile, without docker; `make release` runs docker/install.sh, the step of it that installs tagseg."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def steps() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile with their arguments."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return [(instruction, arguments) for instruction, arguments in pairs]


def test_everything_that_is_copied_is_in_the_build_context(steps: list[tuple[str, str]]) -> None:
    allowed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    sources = [
        source
        for step, arguments in steps
        if step == "COPY" and not arguments.startswith("--from")
        for source in arguments.split()[:-1]
    ]
    assert set(sources) == set(allowed)
    assert all((ROOT / source).exists() for source in sources)


def test_it_runs_as_a_user_without_privileges(steps: list[tuple[str, str]]) -> None:
    last_stage = steps[max(index for index, (step, _) in enumerate(steps) if step == "FROM") :]
    assert [arguments for step, arguments in last_stage if step == "USER"] == ["tagseg"]
    assert ("ENTRYPOINT", '["tagseg"]') in last_stage


def test_no_registry_is_named() -> None:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("Dockerfile", "docker/install.sh")]
    assert not any(re.search(r"https?://|--index|INDEX_URL|--find-links", text) for text in texts)


@pytest.mark.slow
def test_the_script_installs_what_it_names(tmp_path: Path) -> None:
    """A uv that only notes its arguments shows the steps; the environment is this one."""
    target, log = tmp_path / "environment", tmp_path / "log"
    (tmp_path / "uv").write_text(
        f'#!/bin/sh\necho "$@" >>"{log}"\n'
        f'if [ "$1" = venv ]; then mkdir -p "{target}/bin" "{target}/lib"; for name in python tagseg; do\n'
        f"  printf '#!/bin/sh\\n' >\"{target}/bin/$name\"; done\n"
        f'  echo \'exec "$TRIAL_PYTHON" "$@"\' >>"{target}/bin/python"\n'
        f'  echo \'exec "$TRIAL_PYTHON" -m tagseg "$@"\' >>"{target}/bin/tagseg"\n'
        f'  chmod +x "{target}"/bin/*; fi\n'
    )
    (tmp_path / "uv").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TRIAL_PYTHON": sys.executable}
    subprocess.run(["sh", "docker/install.sh", str(target)], cwd=ROOT, env=environment, check=True, timeout=300)
    venv, install = log.read_text().splitlines()
    assert venv.startswith("venv ")
    assert install.endswith("--constraint constraints.txt .[onnx]")
    assert not (target / "trial").exists()
