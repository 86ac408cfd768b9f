"""Figures of the page on this machine: first paint, a result on the page, simultaneous clients and memory.

python -m tests.app.measure --seconds 60

Exit status 1 if a figure is worse than the page promises.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import psutil
import torch
from playwright.sync_api import Browser, expect, sync_playwright

from tagseg.benchmarks.report import describe_machine
from tests.app.chromium import ARGUMENTS, find_chromium
from tests.app.load import send_load

MAX_FIRST_PAINT = 2.0  # seconds
MAX_TO_PAGE = 0.3  # seconds from the model's answer to the page
MAX_GROWTH = 0.05  # of the memory, from a quarter of the time to its end
_REPEATS = 5


@contextmanager
def serve() -> Iterator[tuple[str, int]]:
    """Address and process of `tagseg app`, started as a user does."""
    command = [sys.executable, "-m", "tagseg", "app", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            match = re.search(r"http://\S+", process.stdout.readline())
            assert match is not None
            yield match[0], process.pid
        finally:
            process.terminate()


def measure_page(browser: Browser, url: str) -> dict[str, float]:
    """First paint, and from the model's answer to the page; medians, in seconds."""
    paints, to_page = [], []
    for _ in range(_REPEATS):
        context = browser.new_context()  # without a cache
        page = context.new_page()
        page.goto(url)
        page.get_by_role("button", name="Sample chelsea.jpg").click()
        expect(page.get_by_role("table", name="Time of each setting")).to_contain_text("cat", timeout=60_000)
        page.wait_for_function("performance.getEntriesByName('tagseg-shown').length")
        (paint,) = page.evaluate("performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)")
        sent, shown, seconds = page.evaluate(
            "['tagseg-sent', 'tagseg-shown'].map(name => performance.getEntriesByName(name)[0]).flatMap("
            "mark => [mark.startTime, mark.detail]).filter(value => value !== null)"
        )
        paints.append(paint / 1000)
        to_page.append((shown - sent) / 1000 - sum(seconds.values()))
        context.close()
    return {"first_paint": statistics.median(paints), "to_page": statistics.median(to_page)}


def measure_load(url: str, process_id: int, *, clients: int, seconds: float) -> dict[str, float]:
    """Throughput of one client and of many, and the memory of the server while many ask."""
    alone = send_load(url, clients=1, seconds=seconds / 4)
    memory: list[int] = []
    is_over = Event()

    def watch() -> None:
        while not is_over.wait(0.5):
            memory.append(psutil.Process(process_id).memory_full_info().uss)

    watcher = Thread(target=watch)
    watcher.start()
    try:
        many = send_load(url, clients=clients, seconds=seconds)
    finally:
        is_over.set()
        watcher.join()
    early, late = memory[len(memory) // 4 : len(memory) // 2], memory[-len(memory) // 4 :]
    return {
        "answers": many.num_answers,
        "answers_per_second_of_one_client": alone.throughput,
        "answers_per_second": many.throughput,
        "slowest_answer": many.slowest,
        "memory_mib": statistics.median(late) / 2**20,
        "memory_growth": statistics.median(late) / statistics.median(early) - 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    with serve() as (url, process_id):
        figures: dict[str, float] = {}
        if path := find_chromium():
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
                figures |= measure_page(browser, url)
                browser.close()
        figures |= measure_load(url, process_id, clients=arguments.clients, seconds=arguments.seconds)
    machine = describe_machine(torch.device("cpu")) | {"load": os.getloadavg()[0]}
    print(json.dumps({"date": time.strftime("%Y-%m-%d"), **machine, **figures}, indent=1))
    broken = {
        "first_paint": figures.get("first_paint", 0) > MAX_FIRST_PAINT,
        "to_page": figures.get("to_page", 0) > MAX_TO_PAGE,
        "answers_per_second": figures["answers_per_second"] < figures["answers_per_second_of_one_client"],
        "memory_growth": figures["memory_growth"] > MAX_GROWTH,
    }
    if any(broken.values()):
        sys.exit(f"worse than the page promises: {', '.join(name for name, is_broken in broken.items() if is_broken)}")


if __name__ == "__main__":
    main()
