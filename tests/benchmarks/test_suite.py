import pytest

import tagseg
from tagseg.errors import ConfigError


def test_unknown_benchmark_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown benchmark .speed.; known: crf, evaluate, pamr, predict, sizes"):
        tagseg.bench(["speed"])


def test_arguments_of_evaluate_need_evaluate() -> None:
    with pytest.raises(ConfigError, match="are for the benchmarks evaluate and sizes; name one, or leave them out"):
        tagseg.bench(["pamr"], model="default")
    with pytest.raises(ConfigError, match="needs a model and images with masks; add model= and data="):
        tagseg.bench(["evaluate"])


def test_arguments_of_sizes_need_sizes() -> None:
    with pytest.raises(ConfigError, match="a size is for the benchmark sizes"):
        tagseg.bench(["pamr"], size=300)
