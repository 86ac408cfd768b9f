"""Torture one reader in a process of its own: python -m tests.torture.run_reader NAME FOLDER TRIALS SEED.

Every trial damages the file and reads it. A trial may end in a `TagsegError` only, within 10 seconds; the memory of the
process may grow by 1 GB. The exit status is 0, or 1 with the number of the trial and its traceback.
"""

import faulthandler
import random
import sys
import traceback
import warnings
from pathlib import Path

from tagseg.errors import TagsegError
from tests.torture.readers import READERS

SECONDS = 10
MEMORY = 2**30


def main(name: str, folder: Path, trials: int, seed: int) -> int:
    """Torture a reader; print the number of errors and the memory that it took."""
    warnings.simplefilter("ignore")
    reader = READERS[name](folder)
    reader.read()  # what is not damaged is read
    content = reader.file.read_bytes()
    before = _peak_memory()
    errors = failures = 0
    for trial in range(trials):
        reader.file.write_bytes(reader.mutate(content, random.Random(seed * 1_000_003 + trial)))
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            reader.read()
        except TagsegError as error:
            errors += 1
            failures += not error.for_cli().isprintable()
        except BaseException:
            failures += 1
            print(f"trial {trial}:\n{traceback.format_exc()}", file=sys.stderr)
        faulthandler.cancel_dump_traceback_later()
        if failures >= 5:
            break
    growth = _peak_memory() - before
    print(f"{name}: {trials} trials, {errors} errors, {failures} tracebacks, {growth / 2**20:.0f} MiB more memory")
    return int(failures > 0 or growth > MEMORY)


def _peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


if __name__ == "__main__":
    faulthandler.enable()
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
