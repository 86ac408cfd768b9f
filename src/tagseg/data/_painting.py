"""Colour and texture for a generated scene.

Every kind may have any texture. Each leans to a hue of its own, but so loosely that hues of different kinds overlap:
the colour is a hint, and only the shape tells the kinds apart.
"""

import colorsys
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tagseg.data._scenes import KINDS, Floats, Thing, footprint

_HUE_SPREAD = 0.10  # of the colour circle; the kinds' usual hues are 0.17 apart


def paint(things: list[Thing], size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """The image of a scene, [size, size, 3]."""
    canvas = _ground(size, rng)
    for thing in things:
        cover = footprint(thing, size)
        alpha = cover.coverage[..., None]
        view = canvas[cover.window]
        view += alpha * (_surface(*cover.local, thing.kind / len(KINDS), rng) - view)
    canvas *= _light(size, rng)[..., None]
    canvas += rng.normal(0.0, 0.02, (size, size, 1))
    return (np.clip(canvas, 0.0, 1.0) * 255 + 0.5).astype(np.uint8)


def _ground(size: int, rng: np.random.Generator) -> Floats:
    """Muted cloudy ground with irregular patches and thin wavy strokes: clutter, but none of it closed or convex."""
    hue = rng.uniform()
    base, other, patch = (
        _colour(hue + rng.normal(0, 0.12), rng.uniform(0.1, 0.45), rng.uniform(0.25, 0.85)) for _ in range(3)
    )
    clouds = 0.6 * _smooth_noise(5, size, rng) + 0.4 * _smooth_noise(13, size, rng)
    ground = base + clouds[..., None] * (other - base)
    patches = np.clip((_smooth_noise(9, size, rng) - 0.62) * 12, 0.0, 1.0) * 0.7
    ground += patches[..., None] * (patch - ground)
    for _ in range(rng.integers(2, 6)):
        _stroke(ground, rng)
    return ground


def _stroke(ground: Floats, rng: np.random.Generator) -> None:
    """Draw one thin wavy line across the whole image, in place."""
    size = len(ground)
    along = (np.arange(size) + 0.5) / size
    slope, offset, phase = rng.uniform(-0.8, 0.8), rng.uniform(-0.2, 1.2), rng.uniform(0, 2 * np.pi)
    path = offset + slope * (along - 0.5) + rng.uniform(0.0, 0.06) * np.sin(rng.uniform(4, 16) * along + phase)
    width = rng.uniform(0.004, 0.012)
    inside = np.clip((width - np.abs(along[:, None] - path[None])) * size + 0.5, 0.0, 1.0)
    colour = _colour(rng.uniform(), rng.uniform(0.0, 0.5), rng.uniform(0.1, 0.95))
    view = ground.swapaxes(0, 1) if rng.uniform() < 0.5 else ground
    view += rng.uniform(0.4, 0.9) * inside[..., None] * (colour - view)


def _surface(x: Floats, y: Floats, usual_hue: float, rng: np.random.Generator) -> Floats:
    """A vivid two-coloured pattern in the thing's own coordinates, [h, w, 3]."""
    hue, value = usual_hue + rng.normal(0, _HUE_SPREAD), rng.uniform(0.65, 1.0)
    first = _colour(hue, rng.uniform(0.6, 1.0), value)
    second = _colour(hue + rng.normal(0, 0.05), rng.uniform(0.55, 1.0), value * rng.uniform(0.6, 0.85))
    frequency, phase = rng.uniform(5.0, 11.0), rng.uniform(0, 2 * np.pi)
    pattern = int(rng.integers(4))
    if pattern == 0:
        wave = np.zeros(np.broadcast_shapes(x.shape, y.shape)) - 1.0
    elif pattern == 1:
        wave = np.sin(frequency * x + phase)
    elif pattern == 2:
        wave = np.sin(frequency * x + phase) * np.sin(frequency * y + phase) * 2
    else:
        wave = np.sin(frequency * x + 2 * np.sin(frequency / 2 * y + phase))
    blend = 0.8 * np.clip(0.5 + 2.5 * wave, 0.0, 1.0)[..., None]
    shading = 1.0 - 0.12 * (x * np.cos(phase) + y * np.sin(phase))
    return np.asarray((first + blend * (second - first)) * shading[..., None])


def _light(size: int, rng: np.random.Generator) -> Floats:
    """A gentle change of brightness over the image."""
    along = np.linspace(-0.12, 0.12, size)
    angle = rng.uniform(0, 2 * np.pi)
    light: Floats = 1.0 + along[None] * np.cos(angle) + along[:, None] * np.sin(angle)
    return light


def _smooth_noise(cells: int, size: int, rng: np.random.Generator) -> Floats:
    weights = _interpolation(cells, size)
    noise: Floats = weights @ rng.uniform(0.0, 1.0, (cells, cells)) @ weights.T
    return noise


@cache
def _interpolation(cells: int, size: int) -> Floats:
    """The matrix that enlarges `cells` values to `size` with rounded (cosine) transitions, [size, cells]."""
    position = np.linspace(0, cells - 1, size)
    return np.asarray(0.5 + 0.5 * np.cos(np.pi * np.clip(np.abs(position[:, None] - np.arange(cells)[None]), 0, 1)))


def _colour(hue: float, saturation: float, value: float) -> Floats:
    return np.array(colorsys.hsv_to_rgb(hue % 1.0, saturation, value))
