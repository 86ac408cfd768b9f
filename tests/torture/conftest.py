"""Crashes, lost processes and damaged files, which `make torture` runs; `make test` leaves them out.

TAGSEG_TORTURE is the number of random crashes of each command, and of hundreds of damaged files of each reader.
"""

import os

TRIALS = int(os.environ.get("TAGSEG_TORTURE", "0"))

collect_ignore_glob = [] if TRIALS else ["*"]
