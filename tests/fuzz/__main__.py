"""``python -m tests.fuzz 2000 [FIRST_SEED]``: so many odd inputs, each of which must run or be refused in one line."""

from __future__ import annotations

import faulthandler
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from simrl.model.engine.vllm.compilation import compile_engine
from simrl.terminal import print_answer
from tests.fuzz.odd_inputs import odd_input
from tests.fuzz.verdict import known, verdict

MOST_MEMORY_BYTES = 6 << 30
HANGS_S = 120
"""After so long in one input, compiled code hangs: the process ends with its traceback."""


def main() -> int:
    """Try the inputs; return 1 if anything was found."""
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    compile_engine()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    outcomes: Counter[str] = Counter()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for seed in range(first, first + count):
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            given = odd_input(seed, known())
            started_s = time.monotonic()
            found = verdict(given, Path(folder))
            took_s = time.monotonic() - started_s
            outcomes[f"{given.kind} {found.outcome}"] += 1
            if found.outcome == "finding" or took_s > 5:
                print_answer(f"--- {seed} ({took_s:.1f} s) {given}\n{found.text[:3000]}")
    faulthandler.cancel_dump_traceback_later()
    took_s = time.monotonic() - began_s
    counted = ", ".join(f"{number} {name}" for name, number in sorted(outcomes.items()))
    print_answer(f"{count} inputs in {took_s:.0f} s: {counted}")
    return int(any(name.endswith("finding") for name in outcomes))


if __name__ == "__main__":
    sys.exit(main())
