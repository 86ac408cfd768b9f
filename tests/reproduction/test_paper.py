from tagseg.reproduction.measurements import MEASUREMENTS
from tagseg.reproduction.paper import RUNS, TABLES, find_run
from tagseg.training.recipe import Recipe, recipe_names


def test_every_run_has_a_recipe_and_valid_settings() -> None:
    assert len(set(RUNS)) == len(RUNS)
    for run in RUNS:
        definition = find_run(run)
        assert definition.recipe in recipe_names(all=True)
        learns_masks = Recipe.load(definition.recipe, definition.changes).model.method == "supervised"
        assert learns_masks == (definition.teacher is not None)
    seed_2 = find_run("resnet50-seed-2")
    assert Recipe.load(seed_2.recipe, seed_2.changes).training.seed == 2


def test_every_row_has_a_cell_for_each_heading() -> None:
    for table in TABLES.values():
        assert all(len(row) == len(table.headings) for row in table.rows)
        assert all(result.measurement in MEASUREMENTS for result in table.results)
