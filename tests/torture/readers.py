"""A small valid file for every reader, and how the reader reads it."""

import io
import json
import random
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from tests.data.small_datasets import image_bytes, write_coco, write_image, write_mask, write_text, write_voc
from tests.torture.mutate import mutate_bytes, mutate_json_text

Mutator = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Reader:
    """A reader under torture.

    Attributes:
        file: The file that is damaged.
        read: Reads it.
        mutate: Damages its content.
    """

    file: Path
    read: Callable[[], object]
    mutate: Mutator = mutate_bytes


def _read_dataset(path: Path, *, masks: bool = False, **options: str) -> None:
    from tagseg.data import DataSource

    source = DataSource(path, **options)  # type: ignore[arg-type]
    dataset = source.open()
    for index in range(len(dataset)):
        dataset[index]
    if masks:
        for mask in source.open_masks().values():
            assert mask.ndim == 2


def _image(kind: str, mode: str) -> Callable[[Path], Reader]:
    def make(folder: Path) -> Reader:
        from tagseg.data.files import FileRef, ImageFiles

        noise = np.random.default_rng(0).integers(0, 255, (24, 32, 4), np.uint8)
        file = folder / "image"
        Image.fromarray(noise, "RGBA").convert(mode).save(file, kind)
        files = ImageFiles((FileRef(file),))
        return Reader(file, lambda: (files.read(0), files.info(0)))

    return make


def _large_png(folder: Path) -> Reader:
    from unittest.mock import patch

    from tagseg.data import images

    noise = np.random.default_rng(0).integers(0, 255, (24, 32, 4), np.uint8)
    file = folder / "large.png"
    Image.fromarray(noise, "RGBA").save(file)

    def read() -> None:
        with patch.object(images, "MAX_DECODED_PIXELS", 100):
            images.decode_large(file.read_bytes(), str(file), min_side=2)

    return Reader(file, read, _mutate_rows)


def _mutate_rows(data: bytes, generator: random.Random) -> bytes:
    """Damage a PNG of one IDAT chunk: its rows, under right checksums, or its bytes."""
    if generator.random() < 0.5:
        return mutate_bytes(data, generator)
    start = data.index(b"IDAT")
    end = start + 4 + int.from_bytes(data[start - 4 : start])
    body = zlib.compress(mutate_bytes(zlib.decompress(data[start + 4 : end]), generator))
    chunk = b"IDAT" + body
    return data[: start - 4] + len(body).to_bytes(4) + chunk + zlib.crc32(chunk).to_bytes(4) + data[end + 4 :]


def _mask(folder: Path) -> Reader:
    from tagseg.data.files import FileRef
    from tagseg.data.masks import read_mask

    file = write_mask(folder / "mask.png", 3)
    return Reader(file, lambda: read_mask(FileRef(file)))


def _csv(folder: Path) -> Reader:
    write_image(folder / "a.png")
    write_image(folder / "b.png")
    table = write_text(folder / "t.csv", 'image,labels,split\na.png,"cat;dog",train\nb.png,dog,val\n')
    return Reader(table, lambda: _read_dataset(table))


def _json_lines(folder: Path) -> Reader:
    write_image(folder / "a.png")
    lines = [{"file_name": "a.png", "labels": ["cat", 3], "split": "train"}, {"file_name": "a.png", "labels": "dog"}]
    table = write_text(folder / "t.jsonl", "\n".join(map(json.dumps, lines)))
    return Reader(table, lambda: _read_dataset(table), mutate_json_text)


def _coco(folder: Path) -> Reader:
    from pycocotools import mask

    run_lengths = mask.frPyObjects({"size": [8, 12], "counts": [19, 2, 75]}, 8, 12)["counts"].decode()
    crowd, object_ = ({"size": [8, 12], "counts": counts} for counts in ([19, 2, 75], run_lengths))
    annotations = [
        {"id": 1, "image_id": 7, "category_id": 3, "segmentation": [[1, 1, 6, 1, 6, 5]], "area": 9},
        {"id": 2, "image_id": 9, "category_id": 1, "segmentation": crowd, "iscrowd": 1},
        {"id": 3, "image_id": 9, "category_id": 1, "segmentation": object_},
    ]
    file = write_coco(folder, annotations)
    return Reader(file, lambda: _read_dataset(file, masks=True), mutate_json_text)


def _sbd(folder: Path) -> Reader:
    write_voc(folder)
    file = folder / "benchmark_RELEASE/dataset/cls/d1.mat"
    return Reader(file, lambda: _read_dataset(folder, masks=True))


def _voc_xml(folder: Path) -> Reader:
    write_voc(folder)
    file = folder / "VOCdevkit/VOC2012/Annotations/a1.xml"
    return Reader(file, lambda: _read_dataset(folder, split="train"))


def _zip(method: int) -> Callable[[Path], Reader]:
    def make(folder: Path) -> Reader:
        from tagseg.predict.sources import find_sources

        file = folder / "t.zip"
        with zipfile.ZipFile(file, "w", method) as archive:
            archive.writestr("a/1.png", image_bytes())
            archive.writestr("a/2.png", image_bytes())
        table = write_text(folder / "t.csv", "1.png,cat\n2.png,dog\n")

        def read() -> None:
            for image in find_sources(file).images:
                image.read()  # type: ignore[union-attr]
            _read_dataset(table)

        return Reader(file, read)

    return make


def _tar(folder: Path) -> Reader:
    file = folder / "t.tar"
    with tarfile.open(file, "w") as archive:
        for name, data in (
            ("1.png", image_bytes()),
            ("1.json", b'{"labels": ["cat"]}'),
            ("2.png", image_bytes()),
            ("2.cls", b"dog"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return Reader(file, lambda: _read_dataset(file))


def _arrow(suffix: str) -> Callable[[Path], Reader]:
    def make(folder: Path) -> Reader:
        import pyarrow as pa
        from pyarrow import parquet

        file = folder / f"t{suffix}"
        images = [{"bytes": image_bytes(), "path": name} for name in ("a.png", "b.png")]
        table = pa.table({"image": images, "labels": [["cat"], ["dog", "cat"]]})
        if suffix == ".parquet":
            parquet.write_table(table, file)
        else:
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        return Reader(file, lambda: _read_dataset(file))

    return make


def _pseudo_labels(folder: Path) -> Reader:
    write_image(folder / "images" / "a.png")
    write_text(folder / "t.csv", "images/a.png,cat\n")
    write_mask(folder / "pseudo" / "SegmentationClass" / "images/a.png", 1)
    content = {"data": {"path": str(folder / "t.csv"), "images": [], "limit": 3}, "classes": ["cat"]}
    file = write_text(folder / "pseudo" / "pseudo_labels.json", json.dumps(content))
    return Reader(file, lambda: _read_dataset(file.parent, masks=True), mutate_json_text)


def _yolo(damaged: str) -> Callable[[Path], Reader]:
    def make(folder: Path) -> Reader:
        write_image(folder / "images" / "a.png")
        write_text(folder / "labels" / "a.txt", "0 0 0 0.5 0 0.5 1 0 1\n1 0.2 0.1 1 0.4 0.4 1\n")
        data = write_text(folder / "data.yaml", "train: images\nnames: {0: cat, 1: dog}\n")
        return Reader(folder / damaged, lambda: _read_dataset(data, masks=True))

    return make


def _cvat(damaged: str) -> Callable[[Path], Reader]:
    def make(folder: Path) -> Reader:
        write_image(folder / "JPEGImages" / "a.png")
        mask = write_mask(folder / "SegmentationClass" / "a.png", 3)
        write_text(folder / "ImageSets" / "Segmentation" / "default.txt", "a\n")
        write_text(folder / "labelmap.txt", "background:0,0,0::\ncat:3,252,7::\n")
        with zipfile.ZipFile(folder / "export.zip", "w") as archive:
            for file in (folder / "labelmap.txt", mask, folder / "JPEGImages" / "a.png"):
                archive.write(file, file.relative_to(folder))
        path = folder / "export.zip" if damaged == "export.zip" else folder
        return Reader(folder / damaged, lambda: _read_dataset(path, masks=True))

    return make


def _label_studio(folder: Path) -> Reader:
    from tagseg.data.brush_rle import encode_brush

    write_image(folder / "a.png")
    value = {"format": "rle", "rle": encode_brush(np.eye(8, 12, dtype=bool)), "brushlabels": ["cat"]}
    result = {"type": "brushlabels", "value": value, "original_width": 12, "original_height": 8}
    tasks = [{"id": 1, "data": {"image": "/data/upload/1/a.png"}, "annotations": [{"result": [result]}]}]
    file = write_text(folder / "export.json", json.dumps(tasks))
    return Reader(file, lambda: _read_dataset(file, masks=True), mutate_json_text)


def _image_folder(damaged: str) -> Callable[[Path], Reader]:
    def make(folder: Path) -> Reader:
        write_image(folder / "a.png")
        write_mask(folder / "masks" / "a.png", 1)
        write_text(folder / "id2label.json", '{"0": "background", "1": "cat"}')
        write_text(folder / "metadata.jsonl", '{"file_name": "a.png", "mask_file_name": "masks/a.png"}\n')
        file = folder / "metadata.jsonl"

        def read() -> None:
            from tagseg.data.imagefolder import read_image_folder

            for mask in read_image_folder(file).masks().values():
                assert mask.ndim == 2

        return Reader(folder / damaged, read, mutate_json_text)

    return make


def _run_config(folder: Path) -> Reader:
    from tagseg.training.recipe import Recipe
    from tagseg.training.run_folder import read_config, training_data, validation_data

    write_image(folder / "a.png")
    data = {"path": str(write_text(folder / "t.csv", "a.png,cat\n"))}
    write_text(folder / "validation.txt", "a\n")
    content = {"recipe": Recipe().to_dict(), "classes": ["cat"], "data": {"train": data, "validation": data}}
    file = write_text(folder / "config.json", json.dumps(content))

    def read() -> None:
        Recipe.parse(read_config(folder)["recipe"])
        validation_data(folder)
        training_data(folder)

    return Reader(file, read, mutate_json_text)


def _metrics(folder: Path) -> Reader:
    from tagseg.training.logging import read_metrics

    lines = [{"kind": "train", "step": step, "epoch": 1, "loss": 0.5} for step in (1, 2)]
    file = write_text(folder / "metrics.jsonl", "\n".join(map(json.dumps, lines)))
    return Reader(
        file, lambda: [line["step"] + (line.get("loss") or 0) for line in read_metrics(folder)], mutate_json_text
    )


def _model(folder: Path) -> Reader:
    from tagseg.models import build_model
    from tagseg.models.config import ModelConfig
    from tagseg.models.serialization import load_model, save_model
    from tagseg.predict.settings import InferenceSettings, read_settings

    file = folder / "model.safetensors"
    model = build_model("resnet18", ["cat"], pretrained=False, width=16)
    save_model(model, file, notes={"inference": InferenceSettings().to_json()})
    content = file.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")

    def read() -> None:
        read_settings(file, ModelConfig(class_names=("cat",)))
        load_model(file)

    return Reader(file, read, lambda data, generator: mutate_bytes(data[:header], generator) + data[header:])


def _predictions(folder: Path) -> Reader:
    from tagseg.predict.folder import PredictionFolder
    from tagseg.predict.index import RunRecord
    from tagseg.predict.prediction import OutputFiles

    model = {"name": "m", "method": "cam", "backbone": "vgg16"}
    run = RunRecord.model_validate(
        {"model": model, "classes": ["cat"], "settings": {}, "protocol": "predicted-tags", "crf": False}
    )
    image = {
        "name": "a",
        "path": "a.png",
        "size": {"width": 1, "height": 1},
        "classes": [],
        "scores": {"cat": 0.5},
        "confidence": 0.9,
        "uncertainty": 0.1,
        "nearest_threshold": None,
        "files": {},
    }
    lines = [{"run": run.model_dump(mode="json"), "writes": ["a_mask.png"]}, {"image": image}]
    file = write_text(folder / "predictions.json.journal", "\n".join(map(json.dumps, lines)))

    def read() -> None:
        PredictionFolder(folder, run, OutputFiles(), skip_existing=True).plan([])

    return Reader(file, read, mutate_json_text)


READERS: dict[str, Callable[[Path], Reader]] = {
    "jpeg": _image("JPEG", "RGB"),
    "png": _image("PNG", "RGBA"),
    "png-large": _large_png,
    "webp": _image("WEBP", "RGB"),
    "tiff": _image("TIFF", "RGB"),
    "bmp": _image("BMP", "RGB"),
    "gif": _image("GIF", "P"),
    "avif": _image("AVIF", "RGB"),
    "mask": _mask,
    "csv": _csv,
    "json-lines": _json_lines,
    "coco": _coco,
    "sbd": _sbd,
    "voc-xml": _voc_xml,
    "zip-stored": _zip(zipfile.ZIP_STORED),
    "zip-deflated": _zip(zipfile.ZIP_DEFLATED),
    "zip-lzma": _zip(zipfile.ZIP_LZMA),
    "tar": _tar,
    "arrow": _arrow(".arrow"),
    "parquet": _arrow(".parquet"),
    "pseudo-labels": _pseudo_labels,
    "yolo-labels": _yolo("labels/a.txt"),
    "yolo-data": _yolo("data.yaml"),
    "cvat-label-map": _cvat("labelmap.txt"),
    "cvat-mask": _cvat("SegmentationClass/a.png"),
    "cvat-zip": _cvat("export.zip"),
    "label-studio": _label_studio,
    "image-folder": _image_folder("metadata.jsonl"),
    "image-folder-names": _image_folder("id2label.json"),
    "run-config": _run_config,
    "metrics": _metrics,
    "model": _model,
    "predictions": _predictions,
}
