"""Show that every wrong change of mutations.yaml fails a test: ``python -m tests.mutation [--workers N] [NAME ...]``.

Not part of the default run: it takes a few minutes on two cores, most of them for compiling the changed engine.
Exit code 1 if a change survives, 2 if the table does not fit the sources or a test fails without any change.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from simrl.terminal import print_answer, report
from tests.mutation.mutation import Mutation, StaleTableError, read_table
from tests.mutation.tree import Tree, Verdict


def tests_of(mutations: list[Mutation]) -> list[str]:
    """Return all tests named, each once."""
    return list(dict.fromkeys(test for mutation in mutations for test in mutation.tests))


def print_verdict(mutation: Mutation, verdict: Verdict) -> None:
    """Print one line."""
    outcome = f"killed by {verdict.failed}" if verdict.noticed else f"SURVIVED ({verdict.failed})"
    print_answer(f"{mutation.name:44} {verdict.took_s:5.0f} s  {outcome}")


def survivors(mutations: list[Mutation], trees: list[Tree]) -> list[Mutation]:
    """Try all mutations in the trees, at most one at a time in each; return those that no test noticed."""
    free: SimpleQueue[Tree] = SimpleQueue()
    for tree in trees:
        free.put(tree)

    def attempt(mutation: Mutation) -> bool:
        tree = free.get()
        try:
            verdict = tree.verdict_on(mutation)
        finally:
            free.put(tree)
        print_verdict(mutation, verdict)
        return verdict.noticed

    longest_first = sorted(mutations, key=lambda mutation: not mutation.compiled)
    with ThreadPoolExecutor(len(trees)) as pool:
        noticed = pool.map(attempt, longest_first)
        return [mutation for mutation, was in zip(longest_first, noticed, strict=True) if not was]


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutations to try; all if none is named")
    parser.add_argument("--workers", type=int, default=2, help="trees to work in at once")
    arguments = parser.parse_args()
    began_s = time.monotonic()
    try:
        mutations = read_table(arguments.names)
    except StaleTableError as stale:
        report(str(stale))
        return 2
    with tempfile.TemporaryDirectory(prefix="simrl-mutation-") as folder:
        trees = [Tree(Path(folder) / f"tree{number}") for number in range(min(arguments.workers, len(mutations)))]
        tests = tests_of(mutations)
        with ThreadPoolExecutor(len(trees)) as pool:  # each tree also compiles the engine it will load from now on
            parts = [tests[number :: len(trees)] for number in range(len(trees))]
            unchanged = list(pool.map(Tree.run, trees, parts))
        if failing := [verdict.failed for verdict in unchanged if verdict.code]:
            report(f"without any change these fail: {', '.join(failing)}")
            return 2
        survived = survivors(mutations, trees)
    print_answer(f"{len(mutations) - len(survived)} of {len(mutations)} killed in {time.monotonic() - began_s:.0f} s")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
