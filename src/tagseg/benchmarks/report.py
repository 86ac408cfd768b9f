"""What a benchmark found, with the machine, the date and the versions that it holds for."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import torch

from tagseg._device import usable_cores
from tagseg.benchmarks.timing import Findings, Growth, Row, Table

_PACKAGES = ("tagseg", "torch", "torchvision", "timm", "triton", "numpy", "pydensecrf2")


@dataclass(frozen=True)
class Report:
    """A benchmark's findings and what they hold for.

    Attributes:
        what: the benchmark's name.
        findings: tables and growths.
        machine: processor, cores, memory, GPU.
        date: the day, as 2026-01-31.
        versions: of Python and of what the figures depend on.
    """

    what: str
    findings: Findings
    machine: dict[str, Any]
    date: str
    versions: dict[str, str]

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Self:
        """From what `dataclasses.asdict` made of one, by way of JSON."""
        found = values["findings"]
        tables = tuple(Table(t["title"], tuple(map(_row, t["rows"])), t["note"]) for t in found["tables"])
        growths = tuple(
            Growth(g["title"], g["along"], tuple((x, y) for x, y in g["points"]), g["slope"]) for g in found["growths"]
        )
        return cls(**{**values, "findings": Findings(tables, growths)})


def _row(values: dict[str, Any]) -> Row:
    return Row(**{**values, "rounds": tuple(values.get("rounds", ()))})


def measure(what: str, run: Callable[[torch.device], Findings], device: torch.device) -> Report:
    """Run a benchmark and note what its figures hold for."""
    return Report(what, run(device), _machine(device), datetime.now(UTC).date().isoformat(), _versions())


def _machine(device: torch.device) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "processor": _processor(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "device": device.type,
    }
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts


def _processor() -> str:
    names = Path("/proc/cpuinfo")
    if names.is_file():
        for line in names.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
