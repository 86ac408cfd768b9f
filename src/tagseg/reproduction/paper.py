"""The paper's tables (CVPR 2020, with its supplement), and the runs whose results stand beside the paper's."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tagseg.data.voc import VOC_CLASSES
from tagseg.predict.engine import PREDICTED_TAGS, TRUE_TAGS


@dataclass(frozen=True)
class Result:
    """A result of ours: the mean of a metric over one or more runs.

    Attributes:
        runs: Names of the runs: several if they differ only in the seed.
        measurement: Name of the evaluation in `MEASUREMENTS`.
        metric: `iou`, `precision` or `recall`, in percent.
        class_index: Class of the metric, 0 for the background; None for the mean over all classes.
    """

    runs: tuple[str, ...]
    measurement: str
    metric: str = "iou"
    class_index: int | None = None


Cell = str | float | Result | None  # text, a result of the paper, one of ours, or an empty cell


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, with our results beside its own.

    Attributes:
        title: Title of the table.
        protocol: `predicted-tags` or `true-tags`, one for the whole table; empty where nothing is measured.
        note: Conditions under which the results hold.
        headings: Names of the columns.
        rows: Cells, as many per row as there are headings.
    """

    title: str
    protocol: str
    note: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def results(self) -> Iterator[Result]:
        """Our results in this table."""
        return (cell for row in self.rows for cell in row if isinstance(cell, Result))


_RESNET50 = ("resnet50", "resnet50-seed-1", "resnet50-seed-2", "resnet50-seed-3")
_ABLATION = ("resnet50-ablation", "resnet50-ablation-seed-1")
_DINOV2 = ("dinov2", "dinov2-seed-1", "dinov2-seed-2")


@dataclass(frozen=True)
class Run:
    """How a run is trained.

    Attributes:
        recipe: Name of the recipe.
        changes: Settings that the run changes in it.
        teacher: Run on whose pseudo labels of the training images this one is trained; None trains on image tags.
        limit: Number of training images, evenly spaced, of which some are held out for the thresholds; None trains on
            all of them and tunes the thresholds on the tags of the val images.
    """

    recipe: str
    changes: tuple[str, ...] = ()
    teacher: str | None = None
    limit: int | None = None


_SHORT = ("training.epochs=5", "training.classification_epochs=1")
_RANDOM_CROPS = (  # the default recipe's
    "transforms.area=[0.9, 1.0]",
    *(f"transforms.{name}=0.3" for name in ("brightness", "contrast", "saturation")),
    "transforms.hue=0.1",
)
_PSEUDO_LABELS = ("validation.fraction=0.05",)  # of the pseudo labels: masks of val images only measure
_DINOV2_STUDENT = (
    "model.backbone=vit_small_patch14_dinov2",
    "model.trainable_blocks=all",
    "transforms.scale=[0.5, 1.5]",
    "training.lr=0.00003",
    "training.epochs=10",
    "inference.size=672",
)
# All other runs have the name of their recipe and change nothing.
_RUNS = {
    **{f"resnet50-seed-{seed}": Run("resnet50", (f"training.seed={seed}",)) for seed in (1, 2, 3)},
    "resnet50-ablation-seed-1": Run("resnet50-ablation", ("training.seed=1",)),
    "compact-lowest-loss": Run("compact", ("validation.checkpoint=best",)),
    **{f"dinov2-seed-{seed}": Run("dinov2", (f"training.seed={seed}",)) for seed in (1, 2)},
    "dinov2-short": Run("dinov2", _SHORT),
    "dinov2-short-ema-0.99": Run("dinov2", (*_SHORT, "training.ema=0.99")),
    "dinov2-short-ema-0.99-own-pseudo-labels": Run(
        "dinov2", (*_SHORT, "training.ema=0.99", "pseudo_labels.teacher=network")
    ),
    **{
        f"dinov2-short-{name}": Run("dinov2", (*_SHORT, *changes))
        for name, changes in (
            ("gate", ("model.gate=stochastic",)),
            ("no-walk", ("pseudo_labels.walk_steps=0",)),
            ("no-pamr", ("pseudo_labels.refine=none",)),
            ("background-1", ("model.background_score=1",)),
            ("weighting", ("pseudo_labels.weighting=reference",)),
            ("crops", _RANDOM_CROPS),
        )
    },
    "student-dinov2": Run("student", (*_PSEUDO_LABELS, *_DINOV2_STUDENT), teacher="dinov2"),
    "student-tinyvit": Run("student", _PSEUDO_LABELS, teacher="dinov2"),
    **{
        f"student-{name}": Run("student", (*_PSEUDO_LABELS, f"model.backbone={backbone}"), teacher="dinov2")
        for name, backbone in (("efficientnet-lite0", "tf_efficientnet_lite0"), ("mobilenetv2", "mobilenetv2_100"))
    },
    "default": Run("default"),
    "default-ema": Run("default", ("training.ema=0.999",)),
    "resnet152": Run("resnet50", ("model.backbone=resnet152",)),
    "efficientnet-b3": Run("resnet50", ("model.backbone=efficientnet_b3",)),
    "xception": Run("resnet50", ("model.backbone=legacy_xception",)),
    **{f"laptop-{limit}": Run("laptop", limit=limit) for limit in (300, 1000)},
}


def find_run(name: str) -> Run:
    """Return how a run is trained."""
    return _RUNS.get(name, Run(name))


def _plain_and_crf(*runs: str, paper: float | None = None, paper_crf: float | None = None) -> tuple[Cell, ...]:
    return paper, Result(runs, "tta"), paper_crf, Result(runs, "tta-crf")


_PLAIN_AND_CRF = ("paper", "ours", "paper, CRF", "ours, CRF")
_OURS_ON_VAL = "Ours: scales 1, 0.75, 1.25 and 1.5 with flips"
_SEEDS = "mean ± standard deviation where a row has several seeds"

_TABLE_1 = PaperTable(
    title="Table 1: ablation of the method's parts",
    protocol=PREDICTED_TAGS,
    note=(
        "Mean IoU. Paper: WideResNet-38, all 1,449 val images; psi 0.3 in the rows of the full method and of GCI, 0.5 "
        "in those of PAMR and the penalty, where the full method reaches 59.4, with CRF 62.2. "
        f"{_OURS_ON_VAL}, threshold 0.1; ResNet-50, psi 0.3; {_SEEDS}, else seed 0. Each row from `no PAMR` on makes "
        "one change to `crop 321, 12 epochs`."
    ),
    headings=("", *_PLAIN_AND_CRF),
    rows=(
        ("full method, 4 seeds", *_plain_and_crf(*_RESNET50, paper=59.7, paper_crf=62.7)),
        ("crop 321, 12 epochs, 2 seeds", *_plain_and_crf(*_ABLATION)),
        ("no PAMR", *_plain_and_crf("resnet50-no-pamr", paper=31.8)),
        ("PAMR 1-2-4-8", *_plain_and_crf("resnet50-pamr-1-2-4-8", paper=50.6)),
        ("no gate", *_plain_and_crf("resnet50-no-gate", paper=55.6, paper_crf=57.5)),
        ("deterministic gate", *_plain_and_crf("resnet50-deterministic-gate", paper=57.5, paper_crf=57.7)),
        ("no GCI", *_plain_and_crf("resnet50-no-gci", paper=57.7, paper_crf=60.3)),
        ("no size penalty", *_plain_and_crf("resnet50-no-penalty", paper=56.6)),
        ("no color jitter", *_plain_and_crf("resnet50-no-jitter")),
    ),
)


def _pseudo_and_val(run: str, paper: tuple[float, float], *, crf: str = "") -> tuple[Cell, ...]:
    ours = (Result((run,), f"pseudo{crf}", metric) for metric in ("iou", "precision", "recall"))
    return paper[0], *ours, paper[1], Result((run,), f"tta{crf}")


_TABLE_2 = PaperTable(
    title="Table 2: quality of the pseudo labels",
    protocol=TRUE_TAGS,
    note=(
        "Mean IoU, and for ours also mean precision and recall. Paper: WideResNet-38, 1,464 train and 1,449 val "
        f"images. {_OURS_ON_VAL}; ResNet-50, seed 0."
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


def _on_val(backbone: str, *runs: str) -> tuple[Cell, ...]:
    return "the method", backbone, *_plain_and_crf(*runs), Result(runs, "tta-tags"), Result(runs, "single")


_TABLE_3 = PaperTable(
    title="Table 3: segmentation of val images from image tags alone",
    protocol=PREDICTED_TAGS,
    note=(
        "Mean IoU. Paper: all 1,449 val images; it reports this protocol for WideResNet-38 only. "
        f"{_OURS_ON_VAL}, threshold 0.1; {_SEEDS}. Tuned thresholds: one for each class, tuned on the labels of the "
        "same val images, without CRF. Single-scale: threshold 0.1, without CRF."
    ),
    headings=("", "backbone", *_PLAIN_AND_CRF, "ours, tuned thresholds", "ours, single-scale"),
    rows=(
        _published("AffinityNet, 3 stages", "WideResNet-38", 61.7),
        _published("IRN, 3 stages", "ResNet-50", 63.5),
        _published("SSDD, 2 + 3 stages", "WideResNet-38", 64.9),
        _published("EM", "VGG-16", 38.2),
        _published("MIL-LSE", "Overfeat", 42.0),
        _published("CRF-RNN", "VGG-16", 52.8),
        ("the method", "WideResNet-38", 59.7, None, 62.7, None, None, None),
        _on_val("ResNet-50, 4 seeds", *_RESNET50),
        _on_val("VGG-16", "vgg16"),
        _on_val("MobileNetV2", "mobilenetv2"),
        _on_val("EfficientNet-Lite0", "compact-lowest-loss"),
        _on_val("EfficientNet-Lite0, last checkpoint", "compact"),
    ),
)

_TABLE_4 = PaperTable(
    title="Table 4: training stages",
    protocol="",
    note=(
        "Methods of the paper's table that use image tags alone. A stage is the training of one network on existing "
        "files: here one `tagseg train`."
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


def _of_class(index: int, paper: float, paper_crf: float) -> tuple[Cell, ...]:
    ours, ours_crf = (Result(_RESNET50, name, class_index=index) for name in ("tta", "tta-crf"))
    return paper, ours, paper_crf, ours_crf


_SUPP_C = PaperTable(
    title="Supp. C: IoU of each class",
    protocol=PREDICTED_TAGS,
    note=(
        f"Paper: WideResNet-38, all 1,449 val images. {_OURS_ON_VAL}, threshold 0.1; ResNet-50, mean ± standard "
        "deviation over 4 seeds."
    ),
    headings=("class", *_PLAIN_AND_CRF),
    rows=(
        *(
            (name, *_of_class(index, _BY_CLASS[index], _BY_CLASS_CRF[index]))
            for index, name in enumerate(("background", *VOC_CLASSES))
        ),
        ("mean", *_plain_and_crf(*_RESNET50, paper=59.7, paper_crf=62.7)),
    ),
)

_NO_CAM: tuple[Cell, ...] = (None, None, None, None)

_SUPP_F = PaperTable(
    title="Supp. F: backbones",
    protocol=TRUE_TAGS,
    note=f"Mean IoU. Paper: all 1,449 val images. {_OURS_ON_VAL}; {_SEEDS}; CAM on ResNet-50 has one seed.",
    headings=("", *(f"CAM: {name}" for name in _PLAIN_AND_CRF), *_PLAIN_AND_CRF),
    rows=(
        ("VGG-16", 41.2, None, 38.0, None, *_plain_and_crf("vgg16", paper=55.9, paper_crf=56.6)),
        (
            "ResNet-50, 4 seeds",
            *_plain_and_crf("cam-resnet50", paper=43.7, paper_crf=43.5),
            *_plain_and_crf(*_RESNET50, paper=60.4, paper_crf=64.1),
        ),
        ("ResNet-101", 46.2, None, 45.2, None, 62.9, None, 66.2, None),
        ("WideResNet-38", 44.9, None, 45.2, None, 63.1, None, 65.8, None),
        ("MobileNetV2", *_NO_CAM, *_plain_and_crf("mobilenetv2")),
        ("EfficientNet-Lite0", *_NO_CAM, *_plain_and_crf("compact-lowest-loss")),
        ("EfficientNet-Lite0, last checkpoint", *_NO_CAM, *_plain_and_crf("compact")),
        ("ResNet-152", *_NO_CAM, *_plain_and_crf("resnet152")),
        ("EfficientNet-B3", *_NO_CAM, *_plain_and_crf("efficientnet-b3")),
        ("Xception", *_NO_CAM, *_plain_and_crf("xception")),
    ),
)


def _best_and_last(*runs: str) -> tuple[Cell, ...]:
    return tuple(Result(runs, name) for name in ("tta", "last", "tta-crf", "last-crf"))


_CHECKPOINT = PaperTable(
    title="Best or last checkpoint",
    protocol=PREDICTED_TAGS,
    note=(
        "Mean IoU. Best: the checkpoint with the lowest loss on the val images, which needs their labels and no masks, "
        "as in all other tables unless a row says otherwise. Last: after the last epoch, as `tagseg train` does by "
        f"default. {_OURS_ON_VAL}, threshold 0.1; {_SEEDS}. "
        "EfficientNet-Lite0 was trained once for each column, with one seed."
    ),
    headings=("", "best", "last", "best, CRF", "last, CRF"),
    rows=(
        ("ResNet-50, seeds 1 to 3", *_best_and_last(*_RESNET50[1:])),
        ("VGG-16", *_best_and_last("vgg16")),
        ("MobileNetV2", *_best_and_last("mobilenetv2")),
        (
            "EfficientNet-Lite0",
            *(Result((run,), name) for name in ("tta", "tta-crf") for run in ("compact-lowest-loss", "compact")),
        ),
    ),
)

_CHECKPOINT_TRUE_TAGS = replace(_CHECKPOINT, title="Best or last checkpoint, with known labels", protocol=TRUE_TAGS)


def _inference(measurement: str) -> tuple[Cell, ...]:
    runs = ("resnet50", "resnet50-seed-2", "resnet50-seed-3")
    return Result(runs, measurement), Result(("compact",), measurement)


_INFERENCE = PaperTable(
    title="Inference settings: TTA, tuned thresholds, CRF",
    protocol=PREDICTED_TAGS,
    note=(
        "Mean IoU. TTA: scales 1, 0.75, 1.25 and 1.5 with flips. Threshold 0.1, or one for each class, tuned on the "
        "labels of the same val images. ResNet-50: best checkpoints, mean ± standard deviation over seeds 0, 2 and 3. "
        "EfficientNet-Lite0: the default model."
    ),
    headings=("", "ResNet-50, 3 seeds", "EfficientNet-Lite0"),
    rows=(
        ("single-scale", *_inference("single")),
        ("TTA", *_inference("tta")),
        ("TTA, tuned thresholds", *_inference("tta-tags")),
        ("TTA, CRF", *_inference("tta-crf")),
    ),
)


def _default_model_results(index: int | None) -> tuple[Cell, ...]:
    return tuple(Result(("compact",), "single-tags", metric, index) for metric in ("iou", "precision", "recall"))


_DEFAULT_MODEL = PaperTable(
    title="The default model: metrics of each class",
    protocol=PREDICTED_TAGS,
    note=(
        "Val images, single-scale, no CRF, with the thresholds in the model file: one for each class, tuned on the "
        "labels of the same images."
    ),
    headings=("class", "IoU", "precision", "recall"),
    rows=(
        *((name, *_default_model_results(index)) for index, name in enumerate(("background", *VOC_CLASSES))),
        ("mean", *_default_model_results(None)),
    ),
)

_FEATURES = PaperTable(
    title="Frozen features of DINOv2",
    protocol=PREDICTED_TAGS,
    note=(
        "Mean IoU. Recipe `dinov2`: 672 pixels for the longest side, threshold 0.1. TTA: scales 1, 0.75, 1.25 and 1.5 "
        f"with flips; {_SEEDS}. DINOv2 was trained without labels on 142 million images that were gathered around "
        "public datasets, VOC among them."
    ),
    headings=("", "single-scale", "TTA", "TTA, CRF"),
    rows=(("DINOv2 ViT-S/14", *(Result(_DINOV2, name) for name in ("single", "tta", "tta-crf"))),),
)

_FEATURES_TRUE_TAGS = replace(_FEATURES, title="Frozen features of DINOv2, with known labels", protocol=TRUE_TAGS)

_FEATURES_ABLATION = PaperTable(
    title="Frozen features of DINOv2: training",
    protocol=PREDICTED_TAGS,
    note=(
        "Mean IoU, single-scale, no CRF, seed 0. Each row makes one change to the first row. Epochs on image labels "
        "alone: the first of 5, and the first 2 of 10."
    ),
    headings=("", "single-scale"),
    rows=tuple(
        (title, Result((run,), "single"))
        for title, run in (
            ("5 epochs of recipe `dinov2`", "dinov2-short"),
            ("EMA .99", "dinov2-short-ema-0.99"),
            ("EMA .99, pseudo labels of the network itself", "dinov2-short-ema-0.99-own-pseudo-labels"),
            ("with gate and GCI", "dinov2-short-gate"),
            ("no random walk between tokens", "dinov2-short-no-walk"),
            ("no PAMR", "dinov2-short-no-pamr"),
            ("background score 1, as in the paper", "dinov2-short-background-1"),
            ("weights of the loss as published", "dinov2-short-weighting"),
            ("random crops and colors, features computed in every step", "dinov2-short-crops"),
            ("10 epochs: recipe `dinov2`", "dinov2"),
        )
    ),
)

_SECOND_STAGE = PaperTable(
    title="Second stage: networks on pseudo labels of the recipe dinov2",
    protocol=PREDICTED_TAGS,
    note=(
        "Mean IoU, threshold 0.1. Pseudo labels of the 10,582 training images by the first row, limited to their tags, "
        "with TTA and without CRF. TTA: scales 1, 0.75, 1.25 and 1.5 with flips. DINOv2 was trained without labels on "
        "142 million images that were gathered around public datasets, VOC among them."
    ),
    headings=("", "backbone's weights", "single-scale", "TTA", "TTA, CRF"),
    rows=tuple(
        (title, weights, *(Result((run,), name) for name in ("single", "tta", "tta-crf")))
        for title, weights, run in (
            ("teacher: recipe `dinov2`, seed 0", "DINOv2", "dinov2"),
            ("DINOv2 ViT-S/14, all blocks trained", "DINOv2", "student-dinov2"),
            ("TinyViT-5M", "ImageNet-22k", "student-tinyvit"),
            ("EfficientNet-Lite0", "ImageNet", "student-efficientnet-lite0"),
            ("MobileNetV2", "ImageNet", "student-mobilenetv2"),
        )
    ),
)

_SECOND_STAGE_TRUE_TAGS = replace(_SECOND_STAGE, title="Second stage, with known labels", protocol=TRUE_TAGS)

_AVERAGE = PaperTable(
    title="Moving average of the weights, default recipe",
    protocol=PREDICTED_TAGS,
    note=f"Mean IoU. {_OURS_ON_VAL}, threshold 0.1; ResNet-50, last checkpoint, seed 0.",
    headings=("", "TTA", "TTA, CRF"),
    rows=tuple(
        (title, *(Result((run,), name) for name in ("tta", "tta-crf")))
        for title, run in (("weights of the last step", "default"), ("moving average, decay .999", "default-ema"))
    ),
)

_FEW_IMAGES = PaperTable(
    title="Few images: recipe laptop",
    protocol=PREDICTED_TAGS,
    note=(
        "Mean IoU, single-scale, no CRF, threshold 0.1, seed 0. Images of train_aug, evenly spaced over its list; "
        "recipe `laptop`: 448 pixels for the longest side, recipe `dinov2`: 672. DINOv2 was trained without labels on "
        "142 million images that were gathered around public datasets, VOC among them."
    ),
    headings=("recipe", "images", "mean IoU"),
    rows=tuple(
        (recipe, images, Result((run,), "single"))
        for recipe, images, run in (
            ("`laptop`", "300", "laptop-300"),
            ("`laptop`", "1,000", "laptop-1000"),
            ("`dinov2`", "10,582", "dinov2"),
        )
    ),
)

_FEW_IMAGES_TRUE_TAGS = replace(_FEW_IMAGES, title="Few images, with known labels", protocol=TRUE_TAGS)

TABLES = {
    "table-1": _TABLE_1,
    "table-2": _TABLE_2,
    "table-3": _TABLE_3,
    "table-4": _TABLE_4,
    "supp-c": _SUPP_C,
    "supp-f": _SUPP_F,
    "checkpoint": _CHECKPOINT,
    "checkpoint-true-tags": _CHECKPOINT_TRUE_TAGS,
    "inference": _INFERENCE,
    "default-model": _DEFAULT_MODEL,
    "features": _FEATURES,
    "features-true-tags": _FEATURES_TRUE_TAGS,
    "features-ablation": _FEATURES_ABLATION,
    "second-stage": _SECOND_STAGE,
    "second-stage-true-tags": _SECOND_STAGE_TRUE_TAGS,
    "average": _AVERAGE,
    "few-images": _FEW_IMAGES,
    "few-images-true-tags": _FEW_IMAGES_TRUE_TAGS,
}
# Each run once, in the order of the tables.
RUNS = tuple(dict.fromkeys(run for table in TABLES.values() for result in table.results for run in result.runs))
