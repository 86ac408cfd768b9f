from tagseg.reproduction.measurements import MEASUREMENTS
from tagseg.reproduction.paper import RUNS, TABLES, run_recipe
from tagseg.training.recipe import Recipe, recipe_names


def test_every_run_has_a_recipe_and_valid_settings() -> None:
    assert len(set(RUNS)) == len(RUNS)
    for run in RUNS:
        recipe, settings = run_recipe(run)
        assert recipe in recipe_names(all=True)
        assert Recipe.load(recipe, settings)
    assert Recipe.load(*run_recipe("resnet50-seed-2")).training.seed == 2


def test_every_row_has_a_cell_for_each_heading() -> None:
    for table in TABLES.values():
        assert all(len(row) == len(table.headings) for row in table.rows)
        assert all(result.measurement in MEASUREMENTS for result in table.results)
