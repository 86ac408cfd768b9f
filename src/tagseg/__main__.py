"""`python -m tagseg`, which `accelerate launch -m tagseg` needs."""

from tagseg.cli import main

main()
