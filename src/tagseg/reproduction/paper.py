"""The paper's tables and figures (CVPR 2020, with its supplement), and which of our runs answers each."""

from tagseg.data.voc import VOC_CLASSES
from tagseg.predict.engine import PREDICTED_TAGS, TRUE_TAGS
from tagseg.reproduction.table import Cell, Figure, PaperTable


def _plain_and_crf(run: str, paper: float | None = None, paper_crf: float | None = None) -> tuple[Cell, ...]:
    return paper, Figure(run, "tta"), paper_crf, Figure(run, "tta-crf")


_PLAIN_AND_CRF = ("paper", "ours", "paper, CRF", "ours, CRF")
_OURS_ON_VAL = "Ours: val images, scales 1, .75, 1.25 and 1.5 with flips"

_TABLE_1 = PaperTable(
    title="Table 1: what each part is worth",
    protocol=PREDICTED_TAGS,
    note=(
        "Mean IoU. Paper: WideResNet-38, all 1,449 val images; psi .3 in the rows of the whole method and of GCI, .5 "
        "in those of PAMR and the penalty, where the whole method reaches 59.4, with CRF 62.2. "
        f"{_OURS_ON_VAL}, threshold .1; ResNet-50, psi .3; seed 0 where none is named; each row from `no PAMR` on is "
        "one change to `crop 321, 12 epochs`; that crop is the paper's here."
    ),
    headings=("", *_PLAIN_AND_CRF),
    rows=(
        ("the whole method", *_plain_and_crf("resnet50", 59.7, 62.7)),
        ("the same, seed 1", *_plain_and_crf("resnet50-seed-1")),
        ("the same, seed 2", *_plain_and_crf("resnet50-seed-2")),
        ("the same, seed 3", *_plain_and_crf("resnet50-seed-3")),
        ("crop 321, 12 epochs", *_plain_and_crf("resnet50-ablation")),
        ("crop 321, 12 epochs, seed 1", *_plain_and_crf("resnet50-ablation-seed-1")),
        ("no PAMR", *_plain_and_crf("resnet50-no-pamr", 31.8)),
        ("PAMR 1-2-4-8", *_plain_and_crf("resnet50-pamr-1-2-4-8", 50.6)),
        ("no gate", *_plain_and_crf("resnet50-no-gate", 55.6, 57.5)),
        ("deterministic gate", *_plain_and_crf("resnet50-deterministic-gate", 57.5, 57.7)),
        ("no GCI", *_plain_and_crf("resnet50-no-gci", 57.7, 60.3)),
        ("no size penalty", *_plain_and_crf("resnet50-no-penalty", 56.6)),
        ("no colour jitter", *_plain_and_crf("resnet50-no-jitter")),
    ),
)


def _pseudo_and_val(run: str, paper: tuple[float, float], *, crf: str = "") -> tuple[Cell, ...]:
    file = f"pseudo{crf}"
    further = (Figure(run, file, "precision"), Figure(run, file, "recall"))
    return paper[0], Figure(run, file), *further, paper[1], Figure(run, f"tta{crf}")


_TABLE_2 = PaperTable(
    title="Table 2: masks as pseudo labels",
    protocol=TRUE_TAGS,
    note=(
        "Mean IoU, and of ours mean precision and recall. Paper: WideResNet-38, 1,464 train and 1,449 val images. "
        f"{_OURS_ON_VAL}, and the train images alike; ResNet-50."
    ),
    headings=("", "train, paper", "train, ours", "precision", "recall", "val, paper", "val, ours"),
    rows=(
        ("CAM", *_pseudo_and_val("cam-resnet50", (48.0, 46.8))),
        ("the method", *_pseudo_and_val("resnet50", (64.7, 63.4))),
        ("the method, CRF", *_pseudo_and_val("resnet50", (66.9, 65.3), crf="-crf")),
    ),
)


def _published(method: str, backbone: str, val: float) -> tuple[Cell, ...]:
    return method, backbone, val, None, None, None, None, None


def _on_val(backbone: str, run: str) -> tuple[Cell, ...]:
    return "the method", backbone, *_plain_and_crf(run), Figure(run, "tta-tags"), Figure(run, "single")


_TABLE_3 = PaperTable(
    title="Table 3: segmentation of val images from image tags alone",
    protocol=PREDICTED_TAGS,
    note=(
        "Mean IoU. Paper: all 1,449 val images; it has this protocol for WideResNet-38 only. "
        f"{_OURS_ON_VAL}, threshold .1; then two columns without CRF: with a threshold for each class that is best for "
        "the tags of the same images, and with single scale at the image's own size, threshold .1."
    ),
    headings=("", "backbone", *_PLAIN_AND_CRF, "ours, thresholds from tags", "ours, single scale"),
    rows=(
        _published("AffinityNet, 3 stages", "WideResNet-38", 61.7),
        _published("IRN, 3 stages", "ResNet-50", 63.5),
        _published("SSDD, 2 + 3 stages", "WideResNet-38", 64.9),
        _published("EM", "VGG-16", 38.2),
        _published("MIL-LSE", "Overfeat", 42.0),
        _published("CRF-RNN", "VGG-16", 52.8),
        ("the method", "WideResNet-38", 59.7, None, 62.7, None, None, None),
        _on_val("ResNet-50", "resnet50"),
        _on_val("ResNet-50, seed 1", "resnet50-seed-1"),
        _on_val("ResNet-50, seed 2", "resnet50-seed-2"),
        _on_val("ResNet-50, seed 3", "resnet50-seed-3"),
        _on_val("VGG-16", "vgg16"),
        _on_val("MobileNetV2", "mobilenetv2"),
        _on_val("EfficientNet-Lite0", "compact-lowest-loss"),
        _on_val("EfficientNet-Lite0, last epoch", "compact"),
    ),
)

_TABLE_4 = PaperTable(
    title="Table 4: stages of training",
    protocol="",
    note=(
        "Methods of the paper's table that use image tags alone. One stage is one network trained on files that were "
        "there before: here one `tagseg train`."
    ),
    headings=("", "stages", "a second network on pseudo labels"),
    rows=(
        ("MIL-FCN, MIL-LSE, EM, CRF-RNN", "1", "no"),
        ("AffinityNet", "3", "yes"),
        ("IRN", "3", "yes"),
        ("the method, paper", "1", "no"),
        ("the method, ours", "1", "no"),
    ),
)

# fmt: off
_BY_CLASS = (
    87.0, 63.4, 33.1, 64.5, 47.4, 63.2, 70.2, 59.2, 76.9, 27.3, 67.1, 29.8, 77.0, 67.2, 64.0, 72.4, 46.5, 67.6, 38.1,
    68.2, 63.6,
)
_BY_CLASS_CRF = (
    88.7, 70.4, 35.1, 75.7, 51.9, 65.8, 71.9, 64.2, 81.1, 30.8, 73.3, 28.1, 81.6, 69.1, 62.6, 74.8, 48.6, 71.0, 40.1,
    68.5, 64.3,
)
# fmt: on

_SUPP_C = PaperTable(
    title="Supp. C: IoU of each class",
    protocol=PREDICTED_TAGS,
    note=f"Paper: WideResNet-38, all 1,449 val images. {_OURS_ON_VAL}, threshold .1; ResNet-50.",
    headings=("class", *_PLAIN_AND_CRF),
    rows=(
        *(
            (
                name,
                _BY_CLASS[label],
                Figure("resnet50", "tta", label=label),
                _BY_CLASS_CRF[label],
                Figure("resnet50", "tta-crf", label=label),
            )
            for label, name in enumerate(("background", *VOC_CLASSES))
        ),
        ("mean", *_plain_and_crf("resnet50", 59.7, 62.7)),
    ),
)

_NOTHING: tuple[Cell, ...] = (None, None, None, None)

_SUPP_F = PaperTable(
    title="Supp. F: backbones",
    protocol=TRUE_TAGS,
    note=f"Mean IoU. Paper: all 1,449 val images. {_OURS_ON_VAL}.",
    headings=("", *(f"CAM: {name}" for name in _PLAIN_AND_CRF), *_PLAIN_AND_CRF),
    rows=(
        ("VGG-16", 41.2, None, 38.0, None, *_plain_and_crf("vgg16", 55.9, 56.6)),
        ("ResNet-50", *_plain_and_crf("cam-resnet50", 43.7, 43.5), *_plain_and_crf("resnet50", 60.4, 64.1)),
        ("ResNet-50, seed 1", *_NOTHING, *_plain_and_crf("resnet50-seed-1")),
        ("ResNet-50, seed 2", *_NOTHING, *_plain_and_crf("resnet50-seed-2")),
        ("ResNet-50, seed 3", *_NOTHING, *_plain_and_crf("resnet50-seed-3")),
        ("ResNet-101", 46.2, None, 45.2, None, 62.9, None, 66.2, None),
        ("WideResNet-38", 44.9, None, 45.2, None, 63.1, None, 65.8, None),
        ("MobileNetV2", *_NOTHING, *_plain_and_crf("mobilenetv2")),
        ("EfficientNet-Lite0", *_NOTHING, *_plain_and_crf("compact-lowest-loss")),
        ("EfficientNet-Lite0, last epoch", *_NOTHING, *_plain_and_crf("compact")),
    ),
)


def _chosen_and_last(run: str) -> tuple[Cell, ...]:
    return tuple(Figure(run, file) for file in ("tta", "last", "tta-crf", "last-crf"))


_CHECKPOINT = PaperTable(
    title="Which epoch: the lowest validation loss, or the last",
    protocol=PREDICTED_TAGS,
    note=(
        "Mean IoU. Lowest loss: of the epochs that were tried, the one with the lowest loss on the val images, which "
        f"needs tags and no masks, as in all other tables where nothing else is said. {_OURS_ON_VAL}, threshold .1. "
        "EfficientNet-Lite0 was trained twice with one seed, once for each column."
    ),
    headings=("", "lowest loss", "last epoch", "lowest loss, CRF", "last epoch, CRF"),
    rows=(
        ("ResNet-50", *_chosen_and_last("resnet50")),
        ("ResNet-50, seed 1", *_chosen_and_last("resnet50-seed-1")),
        ("ResNet-50, seed 2", *_chosen_and_last("resnet50-seed-2")),
        ("ResNet-50, seed 3", *_chosen_and_last("resnet50-seed-3")),
        ("VGG-16", *_chosen_and_last("vgg16")),
        ("MobileNetV2", *_chosen_and_last("mobilenetv2")),
        (
            "EfficientNet-Lite0",
            *(Figure(run, file) for file in ("tta", "tta-crf") for run in ("compact-lowest-loss", "compact")),
        ),
    ),
)


def _single(label: int | None) -> tuple[Cell, ...]:
    measures = ("iou", "precision", "recall")
    return tuple(Figure("compact", "single-tags", measure, label) for measure in measures)


_DEFAULT_MODEL = PaperTable(
    title="The model that comes with tagseg: each class",
    protocol=PREDICTED_TAGS,
    note=(
        "Val images, single scale at the image's own size, no CRF, with the thresholds in the model's file: for each "
        "class the one that is best for the tags of the same images."
    ),
    headings=("class", "IoU", "precision", "recall"),
    rows=(
        *((name, *_single(label)) for label, name in enumerate(("background", *VOC_CLASSES))),
        ("mean", *_single(None)),
    ),
)

TABLES = {
    "table-1": _TABLE_1,
    "table-2": _TABLE_2,
    "table-3": _TABLE_3,
    "table-4": _TABLE_4,
    "supp-c": _SUPP_C,
    "supp-f": _SUPP_F,
    "checkpoint": _CHECKPOINT,
    "default-model": _DEFAULT_MODEL,
}
# Every run once, in the order in which the tables ask for it.
RUNS = tuple(dict.fromkeys(figure.run for table in TABLES.values() for figure in table.figures))
