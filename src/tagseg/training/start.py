"""What has to be true before the first step: a network that can be built, and data that can teach it."""

from tagseg.data.check import find_unreadable
from tagseg.data.dataset import ImageDataset
from tagseg.errors import DataError
from tagseg.models import Network, build_cam, build_model
from tagseg.training.recipe import ModelSettings


def build(settings: ModelSettings, classes: tuple[str, ...]) -> Network:
    """The network of a recipe. Without pretrained weights there is nothing to fine-tune, so all of it learns."""
    pretrained = settings.pretrained
    finetune = bool(pretrained) if settings.finetune is None else settings.finetune
    if settings.method == "cam":
        return build_cam(
            settings.backbone, classes, background=settings.background, pretrained=pretrained, finetune=finetune
        )
    return build_model(
        settings.backbone,
        classes,
        pooling=settings.pooling,
        penalty=settings.penalty,
        penalty_p=settings.penalty_p,
        penalty_lambda=settings.penalty_lambda,
        gate=settings.gate,
        psi=settings.psi,
        gci=settings.gci,
        width=settings.width,
        pretrained=pretrained,
        finetune=finetune,
    )


def readable(data: ImageDataset, *, skip_bad: bool) -> tuple[ImageDataset, int]:
    """The images that can be read, and how many cannot; any that cannot is an error unless they are to be skipped."""
    bad = find_unreadable(data, progress=True)
    if bad and not skip_bad:
        first = next(iter(bad.values()))
        raise DataError(
            f"{len(bad)} of {len(data)} images cannot be read; the first: {first}; repair or remove them, or go on "
            "without them by --skip-bad"
        )
    return (data.subset([i for i in range(len(data)) if i not in bad]) if bad else data), len(bad)


def check_evidence(data: ImageDataset) -> list[str]:
    """Refuse tags that cannot teach: classes without an image, and fewer than two classes that tell images apart.

    Returns:
        What may spoil the result without stopping it, a line each.
    """
    counts = data.labels.sum(0)
    never = [name for name, count in zip(data.classes, counts, strict=True) if count == 0]
    if never:
        raise DataError(
            f"no image is tagged {never[0]!r}{f' (nor {len(never) - 1} other classes)' if never[1:] else ''}, so it "
            "cannot be learned; add images of it or remove the class"
        )
    evidence = int(((counts > 0) & (counts < len(data))).sum())
    if evidence < 2:
        raise DataError(
            f"only {evidence} class occurs in some images and not in others, and at least 2 must: masks are learned "
            "from what sets images apart; add images with other tags"
        )
    return [
        f"class {name!r} occurs in every image: nothing shows what it is not, so its masks may cover anything"
        for name, count in zip(data.classes, counts, strict=True)
        if count == len(data)
    ]
