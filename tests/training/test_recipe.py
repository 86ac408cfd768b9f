from pathlib import Path

import pytest

from tagseg.errors import ConfigError
from tagseg.models import ModelConfig, build_network
from tagseg.training.recipe import Recipe, describe_settings, recipe_names

PAPER = ["wideresnet38", "vgg16", "resnet50", "resnet101"]


@pytest.mark.parametrize("name", recipe_names(all=True))
def test_every_recipe_is_valid(name: str) -> None:
    assert isinstance(Recipe.load(name), Recipe)


def test_recipes_have_the_settings_of_the_paper() -> None:
    recipe = Recipe.load("wideresnet38")
    assert (recipe.transforms.crop, recipe.training.lr, recipe.training.epochs) == (321, 0.001, 24)
    assert (recipe.model.psi, recipe.model.penalty_p, recipe.model.penalty_lambda) == (0.3, 3, 0.01)
    assert (recipe.pseudo_labels.dilations, recipe.pseudo_labels.iterations) == ((1, 2, 4, 8, 12, 24), 10)
    assert (recipe.training.classification_epochs, recipe.training.batch_size) == (5, 16)
    assert recipe.training.weight_decay == 5e-4
    for name in ("resnet50", "resnet101"):
        assert (Recipe.load(name).transforms.crop, Recipe.load(name).training.lr) == (448, 0.0005)
    assert all(Recipe.load(name).validation.checkpoint == "best" for name in PAPER)
    assert Recipe.load("default") == Recipe.load("resnet50", ["validation.checkpoint=last"])


def test_recipes_cover_backbones_baselines_and_ablations() -> None:
    names = set(recipe_names(all=True))
    assert {*PAPER, *(f"cam-{name}" for name in PAPER)} <= names
    assert all(Recipe.load(f"cam-{name}").model.method == "cam" for name in PAPER)
    assert {f"focal-p{p}-lambda{lam}" for p in (0, 3, 5) for lam in (0.1, 0.01, 0.001)} <= names
    assert {"no-penalty", "no-pamr", "no-gate", "deterministic-gate", "gate-psi0.3", "gate-psi0.5-no-gci"} <= names
    assert {"pamr-1-2-4-8", "pamr-1-2-4-8-12", "pamr-1-3-6-9-12-16", "pamr-1-2-4-8-12-16"} <= names
    assert {"pamr-iterations-5", "pamr-iterations-10", "pamr-iterations-15"} <= names
    assert Recipe.load("gate-psi0.3-no-gci").model.gci is False
    assert Recipe.load("focal-p5-lambda0.1").model.penalty_lambda == 0.1


def test_assigned_values_are_parsed() -> None:
    recipe = Recipe.load(
        "default",
        ["model.gate=none", "training.lr=0.01", "pseudo_labels.dilations=[1, 2]", "model.pretrained=w.safetensors"],
    )
    assert (recipe.model.gate, recipe.training.lr, recipe.pseudo_labels.dilations) == ("none", 0.01, (1, 2))
    assert recipe.model.pretrained == "w.safetensors"


def test_recipe_file_extends_its_base(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('base = "vgg16"\n[training]\nepochs = 9\n')
    recipe = Recipe.load(path)
    assert (recipe.model.backbone, recipe.training.epochs, recipe.training.lr) == ("vgg16", 9, 0.001)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("resnet5", [], "unknown recipe 'resnet5'; known: .*Did you mean 'resnet50'?"),
        ("none.toml", [], "none.toml: does not exist; name a recipe or a TOML file"),
        ("default", ["model.gat=none"], "unknown setting 'model.gat'; known: .*Did you mean 'model.gate'?"),
        ("default", ["gate=none"], "a setting is changed by section.field=value, .*; got 'gate=none'"),
        ("default", ["training.lr=-1"], r"setting training.lr=-1: input should be greater than 0"),
        ("default", ["pseudo_labels.dilations=[]"], r"setting pseudo_labels.dilations=\[\]: .*at least 1"),
        (
            "default",
            ["pseudo_labels.dilations=[0]"],
            r"setting pseudo_labels.dilations.0=0: input should be greater than or",
        ),
        ("default", ["transforms.area=[-1, 1]"], r"setting transforms.area.0=-1: input should be greater than 0"),
        ("default", ["training.epochs=many"], r"setting training.epochs='many': input should be a valid integer"),
        ("default", ["training.epochs=5"], "training.epochs=5 is not above training.classification_epochs=5"),
    ],
)
def test_wrong_recipes_give_one_line_errors(name: str, changes: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        Recipe.load(name, changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("method", ["cam", "supervised"])
def test_methods_without_pseudo_labels_take_any_number_of_epochs(method: str) -> None:
    assert Recipe.load("default", {"method": method, "epochs": 1}).training.epochs == 1


def test_file_with_unknown_settings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[model]\nbackbon = 'vgg16'\n")
    with pytest.raises(ValueError, match="unknown setting 'model.backbon'.*Did you mean 'model.backbone'"):
        Recipe.load(path)
    path.write_text("[model\n")
    with pytest.raises(ValueError, match="mine.toml is not valid TOML"):
        Recipe.load(path)


def test_all_layers_are_trained_without_pretrained_weights() -> None:
    recipe = Recipe.load("resnet50", ["model.pretrained=false"])
    network = build_network(recipe.model, ("a", "b"))
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_settings_are_changed_by_name() -> None:
    recipe = Recipe.load("default", {"epochs": 8, "model": {"gate": "none", "width": 64}, "training.lr": 0.01})
    assert (recipe.training.epochs, recipe.training.lr) == (8, 0.01)
    assert (recipe.model.gate, recipe.model.width, recipe.model.backbone) == ("none", 64, "resnet50")
    assert Recipe.load(recipe) == recipe
    assert Recipe.load(recipe, ["training.epochs=20"]).training.epochs == 20
    assert recipe.with_settings({"model": ModelConfig(backbone="vgg16")}).model == ModelConfig(backbone="vgg16")
    assert recipe.with_settings({"dilations": (1, 2)}).pseudo_labels.dilations == (1, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"batch_size": 8},
            "'batch_size' is in several sections: training, validation; name one, for example training=",
        ),
        ({"epoch": 8}, "unknown setting 'epoch'; known: .*Did you mean 'epochs'"),
        ({"model": {"gat": "none"}}, "unknown setting 'model.gat'; known: .*Did you mean 'model.gate'"),
        ({"model": 3}, "model is a section of settings and needs a dictionary, got 3"),
        ({"gate": "non"}, "unknown model.gate 'non'; known: .*Did you mean 'none'"),
        ({"gci": "papers"}, "gci must be true, false or 'paper', got 'papers'"),
        ({"class_names": ["a"]}, "unknown setting 'class_names'"),
        ({"model": {"stride_on": "conv1"}}, "unknown setting 'model.stride_on'"),
        ({"epochs": "many"}, "setting training.epochs='many': input should be a valid integer"),
    ],
)
def test_wrong_settings_give_one_line_errors(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        Recipe.load("default", settings)
    assert "\n" not in str(error.value)


def test_toml_round_trip(tmp_path: Path) -> None:
    recipe = Recipe.load("cam-vgg16", {"epochs": 3})
    (tmp_path / "mine.toml").write_text(recipe.to_toml())
    assert Recipe.load(tmp_path / "mine.toml") == recipe
    assert Recipe.parse(recipe.to_dict()) == recipe


def test_recipe_based_on_itself_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('base = "mine.toml"')
    with pytest.raises(ConfigError, match="recipe mine.toml is based on itself"):
        Recipe.load("mine.toml")


def test_every_setting_is_described() -> None:
    settings = describe_settings()
    assert all(description for _, description in settings.values())
    assert settings["model.finetune"][0] == "auto"
    assert "model.class_names" not in settings


def test_pretrained_weights_may_be_a_path() -> None:
    assert Recipe.load("default", {"pretrained": Path("weights.pth")}).model.pretrained == "weights.pth"


def test_fields_that_come_with_the_data_are_refused() -> None:
    with pytest.raises(ValueError, match=r"model.in_channels comes with the data or the weights"):
        Recipe(model=ModelConfig(in_channels=1))
