"""Scenes of the built-in dataset: where the shapes lie, and how they are painted.

A scene is in units of the image's side, so its labels are known before a pixel is painted and are the same at every
size. Shapes of every class may have any texture. Each class prefers a hue, but hues of different classes overlap: color
is a hint, and only the outline tells the classes apart.
"""

import colorsys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_HUE_SPREAD = 0.10  # of the color circle; the classes' preferred hues are 0.17 apart
_MIN_RADIUS, _MAX_RADIUS = 0.14, 0.24
_MAX_ROTATION = 0.5  # radians: shapes are tilted, but not upside down
_MIN_VISIBLE = 0.5  # fraction of a shape that no other shape covers, so that its label can be seen
_LAYOUT_SIDE = 48  # visibility is measured on this grid, independently of the image size
_MAX_ATTEMPTS = 8


def _disc(x: Floats, y: Floats) -> Floats:
    distance: Floats = np.hypot(x, y) - 1.0
    return distance


def _square(x: Floats, y: Floats) -> Floats:
    return np.maximum(np.abs(x), np.abs(y)) - 0.82


def _triangle(x: Floats, y: Floats) -> Floats:
    distance: Floats = np.maximum(np.abs(x) * 0.75**0.5 + y / 2, -y) - 0.62
    return distance


def _star(x: Floats, y: Floats) -> Floats:
    # By symmetry all ten edges map to one: from the outer corner at angle 0 to the inner corner at 36 degrees.
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


# Signed distance to the outline in units of the shape's radius, negative inside.
_OUTLINES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "disc": _disc,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "ring": _ring,
    "cross": _cross,
}
SHAPE_CLASSES = tuple(_OUTLINES)
_MAX_EXTENT = 1.3  # largest distance of an outline from its center, in radii


@dataclass(frozen=True)
class Shape:
    """One shape of a scene.

    Attributes:
        class_index: Index into `SHAPE_CLASSES`.
        x: Center, as a fraction of the image's width.
        y: Center, as a fraction of the image's height.
        radius: Radius, as a fraction of the image's side.
        angle: Rotation in radians.
    """

    class_index: int
    x: float
    y: float
    radius: float
    angle: float


@dataclass(frozen=True)
class Raster:
    """Pixels that a shape covers.

    Attributes:
        window: Rows and columns of the image that the shape may touch.
        coverage: Covered fraction of each pixel in the window, for a smooth outline, [h, w].
        local: Coordinates x and y in the shape's own frame, in radii, for its texture.
    """

    window: tuple[slice, slice]
    coverage: Floats
    local: tuple[Floats, Floats]


def rasterize(shape: Shape, size: int) -> Raster:
    """Compute the pixels that a shape covers in an image of `size` x `size`."""
    reach = shape.radius * _MAX_EXTENT * size + 1
    rows = _span(shape.y * size, reach, size)
    columns = _span(shape.x * size, reach, size)
    dx = (np.arange(columns.start, columns.stop)[None] + 0.5) / size - shape.x
    dy = (np.arange(rows.start, rows.stop)[:, None] + 0.5) / size - shape.y
    cos, sin = np.cos(shape.angle) / shape.radius, np.sin(shape.angle) / shape.radius
    local = (dx * cos + dy * sin, dy * cos - dx * sin)
    distance = _OUTLINES[SHAPE_CLASSES[shape.class_index]](*local) * (shape.radius * size)
    return Raster((rows, columns), np.clip(0.5 - distance, 0.0, 1.0), local)


def draw_scene(rng: np.random.Generator) -> list[Shape]:
    """Draw one to four shapes of one to three classes, from back to front, each of them mostly visible."""
    classes = rng.permutation(len(SHAPE_CLASSES))[: rng.integers(1, 4)]
    count = rng.integers(len(classes), 5)
    class_indices = rng.permutation(np.concatenate([classes, rng.choice(classes, count - len(classes))]))
    scene: list[Shape] = []
    for class_index in class_indices:
        for _ in range(_MAX_ATTEMPTS):
            candidate = _draw_shape(rng, int(class_index))
            if _all_visible([*scene, candidate]):
                scene.append(candidate)
                break
    return scene


def scene_mask(scene: list[Shape], size: int) -> NDArray[np.uint8]:
    """Exact mask of a scene, [size, size]: 0 is background, k is class k - 1."""
    mask = np.zeros((size, size), np.uint8)
    for shape in scene:
        raster = rasterize(shape, size)
        mask[raster.window][raster.coverage >= 0.5] = shape.class_index + 1
    return mask


def _draw_shape(rng: np.random.Generator, class_index: int) -> Shape:
    radius = rng.uniform(_MIN_RADIUS, _MAX_RADIUS)
    x, y = rng.uniform(0.8 * radius, 1 - 0.8 * radius, 2)
    angle = rng.uniform(-_MAX_ROTATION, _MAX_ROTATION)
    return Shape(class_index, float(x), float(y), float(radius), float(angle))


def _all_visible(scene: list[Shape]) -> bool:
    top_shape = np.full((_LAYOUT_SIDE, _LAYOUT_SIDE), -1)
    areas = np.zeros(len(scene))
    for i, shape in enumerate(scene):
        raster = rasterize(shape, _LAYOUT_SIDE)
        inside = raster.coverage >= 0.5
        top_shape[raster.window][inside] = i
        areas[i] = np.count_nonzero(inside)
    visible = np.bincount(top_shape[top_shape >= 0], minlength=len(scene))
    return bool(np.all(visible >= _MIN_VISIBLE * areas))


def _span(center: float, reach: float, size: int) -> slice:
    return slice(max(0, int(center - reach)), min(size, int(center + reach) + 1))


def paint(scene: list[Shape], size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Paint the image of a scene, [size, size, 3]."""
    canvas = _background(size, rng)
    for shape in scene:
        raster = rasterize(shape, size)
        alpha = raster.coverage[..., None]
        view = canvas[raster.window]
        view += alpha * (_texture(*raster.local, shape.class_index / len(SHAPE_CLASSES), rng) - view)
    canvas *= _lighting(size, rng)[..., None]
    canvas += rng.normal(0.0, 0.02, (size, size, 1))
    return (np.clip(canvas, 0.0, 1.0) * 255 + 0.5).astype(np.uint8)


def _background(size: int, rng: np.random.Generator) -> Floats:
    """Clutter that looks like no shape: muted colors, irregular patches and thin wavy lines, [size, size, 3]."""
    hue = rng.uniform()
    base, other, patch = (
        _color(hue + rng.normal(0, 0.12), rng.uniform(0.1, 0.45), rng.uniform(0.25, 0.85)) for _ in range(3)
    )
    clouds = 0.6 * _smooth_noise(5, size, rng) + 0.4 * _smooth_noise(13, size, rng)
    ground = base + clouds[..., None] * (other - base)
    patches = np.clip((_smooth_noise(9, size, rng) - 0.62) * 12, 0.0, 1.0) * 0.7
    ground += patches[..., None] * (patch - ground)
    for _ in range(rng.integers(2, 6)):
        _add_line(ground, rng)
    return ground


def _add_line(ground: Floats, rng: np.random.Generator) -> None:
    """Draw one thin wavy line across the image, in place."""
    size = len(ground)
    along = (np.arange(size) + 0.5) / size
    slope, offset, phase = rng.uniform(-0.8, 0.8), rng.uniform(-0.2, 1.2), rng.uniform(0, 2 * np.pi)
    path = offset + slope * (along - 0.5) + rng.uniform(0.0, 0.06) * np.sin(rng.uniform(4, 16) * along + phase)
    width = rng.uniform(0.004, 0.012)
    inside = np.clip((width - np.abs(along[:, None] - path[None])) * size + 0.5, 0.0, 1.0)
    color = _color(rng.uniform(), rng.uniform(0.0, 0.5), rng.uniform(0.1, 0.95))
    view = ground.swapaxes(0, 1) if rng.uniform() < 0.5 else ground
    view += rng.uniform(0.4, 0.9) * inside[..., None] * (color - view)


def _texture(x: Floats, y: Floats, preferred_hue: float, rng: np.random.Generator) -> Floats:
    """Vivid pattern of two colors in the shape's own coordinates, [h, w, 3]."""
    hue, value = preferred_hue + rng.normal(0, _HUE_SPREAD), rng.uniform(0.65, 1.0)
    first = _color(hue, rng.uniform(0.6, 1.0), value)
    second = _color(hue + rng.normal(0, 0.05), rng.uniform(0.55, 1.0), value * rng.uniform(0.6, 0.85))
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


def _lighting(size: int, rng: np.random.Generator) -> Floats:
    """Linear change of brightness over the image, [size, size]."""
    along = np.linspace(-0.12, 0.12, size)
    angle = rng.uniform(0, 2 * np.pi)
    lighting: Floats = 1.0 + along[None] * np.cos(angle) + along[:, None] * np.sin(angle)
    return lighting


def _smooth_noise(cells: int, size: int, rng: np.random.Generator) -> Floats:
    weights = _interpolation(cells, size)
    noise: Floats = weights @ rng.uniform(0.0, 1.0, (cells, cells)) @ weights.T
    return noise


@cache
def _interpolation(cells: int, size: int) -> Floats:
    """Matrix that interpolates `cells` values to `size` values with cosine transitions, [size, cells]."""
    position = np.linspace(0, cells - 1, size)
    return np.asarray(0.5 + 0.5 * np.cos(np.pi * np.clip(np.abs(position[:, None] - np.arange(cells)[None]), 0, 1)))


def _color(hue: float, saturation: float, value: float) -> Floats:
    return np.array(colorsys.hsv_to_rgb(hue % 1.0, saturation, value))
