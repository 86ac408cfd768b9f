"""Where the things of a generated image lie: six kinds that differ in shape, some in front of others.

A scene is in units of the image's side, so its tags are known before a single pixel is painted and are the same at
every size.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.uint8]

_SMALLEST_RADIUS, _LARGEST_RADIUS = 0.14, 0.24
_LARGEST_TURN = 0.5  # radians: things lean, but are not upside down
_LEAST_VISIBLE = 0.5  # a thing hidden further than this would carry a tag that nobody could see
_LAYOUT_SIDE = 48  # visibility is measured on this grid, whatever size the image is painted at
_PLACES_TRIED = 8


def _disc(x: Floats, y: Floats) -> Floats:
    distance: Floats = np.hypot(x, y) - 1.0
    return distance


def _square(x: Floats, y: Floats) -> Floats:
    return np.maximum(np.abs(x), np.abs(y)) - 0.82


def _triangle(x: Floats, y: Floats) -> Floats:
    distance: Floats = np.maximum(np.abs(x) * 0.75**0.5 + y / 2, -y) - 0.62
    return distance


def _star(x: Floats, y: Floats) -> Floats:
    # All ten edges fold onto one: from the outer corner at angle 0 to the inner corner at 36 degrees.
    outer, inner, step = 1.25, 0.56, np.pi / 5
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    folded = np.abs((angle + step) % (2 * step) - step)
    edge = np.array([inner * np.cos(step) - outer, inner * np.sin(step)])
    normal = np.array([edge[1], -edge[0]]) / np.hypot(*edge)
    distance: Floats = (radius * np.cos(folded) - outer) * normal[0] + radius * np.sin(folded) * normal[1]
    return distance


def _ring(x: Floats, y: Floats) -> Floats:
    return np.abs(np.hypot(x, y) - 0.79) - 0.26


def _cross(x: Floats, y: Floats) -> Floats:
    long, short = np.maximum(np.abs(x), np.abs(y)), np.minimum(np.abs(x), np.abs(y))
    return np.maximum(long - 1.05, short - 0.36)


# Signed distance to the outline in units of the thing's radius, negative inside.
_OUTLINES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "disc": _disc,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "ring": _ring,
    "cross": _cross,
}
KINDS = tuple(_OUTLINES)
_FURTHEST_CORNER = 1.3  # no outline reaches further than this many radii from its centre


@dataclass(frozen=True)
class Thing:
    """One object; its position and radius are fractions of the image's side."""

    kind: int  # index into KINDS
    x: float
    y: float
    radius: float
    angle: float


@dataclass(frozen=True)
class Footprint:
    """The part of the image that a thing may touch, and how much of each pixel there it covers."""

    window: tuple[slice, slice]
    coverage: Floats  # [h, w], 0 to 1, for a soft outline
    local: tuple[Floats, Floats]  # the thing's own coordinates (turned with it), in radii, for its texture


def footprint(thing: Thing, size: int) -> Footprint:
    """The pixels that a thing covers in an image of `size` x `size`."""
    reach = thing.radius * _FURTHEST_CORNER * size + 1
    rows = _span(thing.y * size, reach, size)
    columns = _span(thing.x * size, reach, size)
    dx = (np.arange(columns.start, columns.stop)[None] + 0.5) / size - thing.x
    dy = (np.arange(rows.start, rows.stop)[:, None] + 0.5) / size - thing.y
    cos, sin = np.cos(thing.angle) / thing.radius, np.sin(thing.angle) / thing.radius
    local = (dx * cos + dy * sin, dy * cos - dx * sin)
    distance = _OUTLINES[KINDS[thing.kind]](*local) * (thing.radius * size)
    return Footprint((rows, columns), np.clip(0.5 - distance, 0.0, 1.0), local)


def draw_scene(rng: np.random.Generator) -> list[Thing]:
    """One to four things of one to three kinds, from back to front, each of them mostly visible."""
    kinds = rng.permutation(len(KINDS))[: rng.integers(1, 4)]
    count = rng.integers(len(kinds), 5)
    drawn = rng.permutation(np.concatenate([kinds, rng.choice(kinds, count - len(kinds))]))
    things: list[Thing] = []
    for kind in drawn:
        for _ in range(_PLACES_TRIED):
            candidate = _draw_thing(rng, int(kind))
            if _all_visible([*things, candidate]):
                things.append(candidate)
                break
    return things


def label_map(things: list[Thing], size: int) -> Labels:
    """The exact mask of a scene, [size, size]: 0 background, 1 and up the kinds."""
    mask = np.zeros((size, size), np.uint8)
    for thing in things:
        cover = footprint(thing, size)
        mask[cover.window][cover.coverage >= 0.5] = thing.kind + 1
    return mask


def _draw_thing(rng: np.random.Generator, kind: int) -> Thing:
    radius = rng.uniform(_SMALLEST_RADIUS, _LARGEST_RADIUS)
    x, y = rng.uniform(0.8 * radius, 1 - 0.8 * radius, 2)
    return Thing(kind, float(x), float(y), float(radius), float(rng.uniform(-_LARGEST_TURN, _LARGEST_TURN)))


def _all_visible(things: list[Thing]) -> bool:
    owner = np.full((_LAYOUT_SIDE, _LAYOUT_SIDE), -1)
    areas = np.zeros(len(things))
    for i, thing in enumerate(things):
        cover = footprint(thing, _LAYOUT_SIDE)
        inside = cover.coverage >= 0.5
        owner[cover.window][inside] = i
        areas[i] = np.count_nonzero(inside)
    visible = np.bincount(owner[owner >= 0], minlength=len(things))
    return bool(np.all(visible >= _LEAST_VISIBLE * areas))


def _span(centre: float, reach: float, size: int) -> slice:
    return slice(max(0, int(centre - reach)), min(size, int(centre + reach) + 1))
