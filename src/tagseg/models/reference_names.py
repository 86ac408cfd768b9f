"""The names that the paper's authors gave to the tensors of the paper's networks."""

import re

_WIDERESNET = [
    (r"conv1\.", "conv1a."),
    (r"norm\.", "bn7."),
    (r"stage(\d)\.0\.", r"b\1."),
    (r"stage(\d)\.(\d)\.", r"b\1_\2."),
]
_WIDERESNET_BLOCK = [
    (r"(b\d.*)norms\.0\.", r"\1bn_branch2a."),
    (r"(b\d.*)norms\.1\.", r"\1bn_branch2b1."),
    (r"(b\d.*)norms\.2\.", r"\1bn_branch2b2."),
    (r"(b\d.*)convs\.0\.", r"\1conv_branch2a."),
    (r"(b\d.*)convs\.1\.", r"\1conv_branch2b1."),
    (r"(b\d.*)convs\.2\.", r"\1conv_branch2b2."),
    (r"(b\d.*)shortcut\.", r"\1conv_branch1."),
]
_VGG = [
    (rf"features\.{index}\.", f"conv{stage}_{layer}.")
    for stage, indices in enumerate(((0, 2), (5, 7), (10, 12, 14), (17, 19, 21), (24, 26, 28)), 1)
    for layer, index in enumerate(indices, 1)
]
_HEAD = [
    (r"aspp\.convs\.4\.", "aspp.global_avg_pool."),
    *((rf"aspp\.convs\.{i}\.0\.", f"aspp.aspp{i + 1}.atrous_conv.") for i in range(4)),
    *((rf"aspp\.convs\.{i}\.1\.", f"aspp.aspp{i + 1}.bn.") for i in range(4)),
    (r"aspp\.project\.0\.", "aspp.conv1."),
    (r"aspp\.project\.1\.", "aspp.bn1."),
    (r"shallow\.cues\.", "shallow_mask.fc_deep."),
    (r"shallow\.shallow\.", "shallow_mask.fc_skip.0."),
    (r"shallow\.norm\.", "shallow_mask.fc_skip.1."),
    (r"shallow\.merge\.", "shallow_mask.fc_cls."),
    (r"skip\.", "fc8_skip."),
    (r"fuse\.", "fc8_x."),
    (r"decoder\.", "last_conv."),
    (r"classifier\.", "fc8."),
]


def reference_name(name: str, backbone: str) -> str:
    """The authors' name of a tensor or module.

    Args:
        name: its name in one of the networks here, for example `backbone.stage3.0.convs.1.weight`.
        backbone: the backbone's name.
    """
    name += "."  # so that a module's own name matches like a prefix
    if not name.startswith("backbone."):
        name = _rename(name, _HEAD)
    else:
        name = name.removeprefix("backbone.")
        if backbone == "wideresnet38":
            name = _rename(_rename(name, _WIDERESNET), _WIDERESNET_BLOCK)
        elif backbone == "vgg16":
            name = _rename(name, _VGG)
    return name.removesuffix(".")


def _rename(name: str, rules: list[tuple[str, str]]) -> str:
    """Apply the first rule that matches the start of a name."""
    for pattern, replacement in rules:
        renamed, matched = re.subn("^" + pattern, replacement, name, count=1)
        if matched:
            return renamed
    return name
