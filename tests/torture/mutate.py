"""Damage files at random: their bytes, or the structure of their JSON."""

import copy
import json
import random
from typing import Any

_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 255, 10**30, 1e308, float("nan"), "", "\x1b[31m", "../../a.png", "\ud800", "x" * 5000,
    [], {}, [[]], {"a": {}},
)  # fmt: skip


def mutate_bytes(content: bytes, generator: random.Random) -> bytes:
    """Change, remove, repeat or insert some bytes."""
    damaged = bytearray(content)
    for _ in range(generator.randint(1, 6)):
        start = generator.randrange(len(damaged) + 1)
        length = min(len(damaged) - start, generator.choice((1, 1, 2, 4, 8, 64)))
        match generator.randrange(5):
            case 0:
                damaged[start : start + length] = generator.randbytes(length)
            case 1:
                damaged[start : start + length] = bytes([generator.choice((0, 1, 127, 128, 255))]) * length
            case 2:
                del damaged[start : start + length]
            case 3:
                damaged[start:start] = damaged[start : start + length] * generator.choice((1, 3))
            case 4 if generator.random() < 0.1:
                del damaged[start:]
    return bytes(damaged)


def mutate_json(content: Any, generator: random.Random) -> Any:
    """Replace, remove or repeat some values of a JSON."""
    content = copy.deepcopy(content)
    for _ in range(generator.randint(1, 3)):
        places = list(_places(content))
        if not places:
            return generator.choice(_VALUES)
        parent, key = generator.choice(places)
        match generator.randrange(4):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, list):
                parent.insert(key, copy.deepcopy(parent[key]))
            case 2:
                other, other_key = generator.choice(places)
                with_other = copy.deepcopy(other[other_key]) if _has(other, other_key) else None
                parent[key] = with_other
            case _:
                parent[key] = copy.deepcopy(generator.choice(_VALUES))
    return content


def mutate_json_text(text: bytes, generator: random.Random) -> bytes:
    """Damage the structure of a JSON or JSON lines file, or its bytes."""
    if generator.random() < 0.3:
        return mutate_bytes(text, generator)
    if generator.random() < 0.01:
        return b"[" * 200_000
    lines = text.splitlines() if text.count(b"\n{") else [text]
    number = generator.randrange(len(lines))
    lines[number] = json.dumps(mutate_json(json.loads(lines[number]), generator)).encode("utf-8")
    return b"\n".join(lines)


def _places(content: Any) -> Any:
    for key in content if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ():
        yield content, key
        yield from _places(content[key])


def _has(parent: Any, key: Any) -> bool:
    return key in parent if isinstance(parent, dict) else key < len(parent)
