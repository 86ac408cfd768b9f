"""Tools that write this repository's documents and the default model; they are not part of the installed package.

python -m tools.performance_doc results/performance docs/performance.md
python -m tools.results_doc results docs/results.md
python -m tools.results_doc results src/tagseg/default/README.md
python -m tools.publish_run runs results
python -m tools.ship_model runs/compact
"""
