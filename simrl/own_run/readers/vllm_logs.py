"""vLLM's log: a line an engine every 10 s, a line an iteration with ``--enable-logging-iteration-details``.

Forms read in the 0.30.0 wheel (v1/metrics/loggers.py). Before 0.30 prompt throughput counts cached tokens too.
"""

from __future__ import annotations

import re
from pathlib import Path

from simrl.own_run.imported_run import ImportedRun
from simrl.own_run.text_lines import Line, ReadProgress, looked_at, text_lines

NAME = "vllm"
TIME = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b")
NUMBER = r"([-+0-9.eE]+|nan|inf)"
CONSOLE = re.compile(
    rf"Engine (\d+): Avg prompt throughput: {NUMBER} tokens/s, Avg generation throughput: {NUMBER} tokens/s, "
    r"Running: (\d+) reqs, Waiting: (\d+) reqs, (?:Deferred: \d+ reqs, )?(?:Preemptions: (\d+), )?"
    rf"GPU KV cache usage: {NUMBER}%"
)
ITERATION = re.compile(
    r"(?:Engine (\d+): )?Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, "
    rf"(\d+) generation requests, (\d+) generation tokens, iteration elapsed time: {NUMBER} ms"
    rf"(?:, GPU KV cache usage: {NUMBER}%)?"
)
POOL = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
MARKS = ("Avg prompt throughput", "Iteration(", "GPU KV cache size")
WINDOW_S = 10.0
"""vLLM's interval between lines, VLLM_LOG_STATS_INTERVAL."""
LONGEST_WINDOW_S = 120.0
"""Between lines that are further apart the log was silent, and the window is the usual one."""
JOINED = 32
"""Pure decode iterations that become one window at most."""
MONTH_DAYS = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)


def sniff(path: Path) -> bool:
    """Return whether a file has lines of a vLLM engine."""
    text = looked_at(path)
    return any(mark in text for mark in MARKS)


def clock_s(text: str) -> float | None:
    """Return the seconds since New Year of a line's ``MM-DD HH:MM:SS``; None without one."""
    found = TIME.search(text)
    if found is None:
        return None
    month, day, hour, minute, second = map(int, found.groups())
    if not 1 <= month <= 12:
        return None
    return (((MONTH_DAYS[month - 1] + day - 1) * 24 + hour) * 60 + minute) * 60.0 + second


class _Joined:
    """Pure decode iterations of one engine that are on their way to become one window."""

    def __init__(self) -> None:
        self.count, self.seconds, self.tokens, self.usage = 0, 0.0, 0.0, 0.0
        self.last = -1


class VllmLog:
    """Reads the lines of one vLLM log, which may come from several processes."""

    def __init__(self, run: ImportedRun, path: Path):
        self._run = run
        self.count = run.opened(path, NAME)
        self._last: dict[str, tuple[str, float]] = {}
        self._preempted: dict[str, int] = {}
        self._joined: dict[str, _Joined] = {}
        self._clock: dict[str, float] = {}

    def line(self, line: Line) -> None:
        """Take in a line; others' lines are left alone."""
        text = line.text
        if "Avg prompt throughput" in text:
            self._console(line)
        elif "Iteration(" in text and "elapsed time" in text:
            self._iteration(line)
        elif "GPU KV cache size" in text:
            found = POOL.search(text)
            if found is None:
                self.count.damaged["KV cache size without tokens"] += 1
                return
            self._run.pools[line.origin or "0"] = (float(found[1].replace(",", "")), None)
            self.count.used += 1

    def _console(self, line: Line) -> None:
        found = CONSOLE.search(line.text)
        numbers = [] if found is None else [float_or_nan(found[place]) for place in (2, 3, 7)]
        if found is None or not all(0 <= number < 1e9 for number in numbers) or numbers[2] > 100.5:
            self.count.damaged["engine line that is cut or garbled"] += 1
            return
        engine = f"{line.origin}/{found[1]}".strip("/")
        stamp = clock_s(line.text[: found.start()])
        before = self._last.get(engine)
        if before is not None and before[0] == line.text and stamp is not None:
            self.count.damaged["engine line that stands twice"] += 1
            return
        window_s = WINDOW_S
        now_s = self._clock.get(engine, 0.0) + WINDOW_S if stamp is None else stamp
        if before is not None and 0 < now_s - before[1] <= LONGEST_WINDOW_S:
            window_s = now_s - before[1]
        self._last[engine] = (line.text, now_s)
        self._clock[engine] = now_s
        if found[6] is not None:  # counted since the line before
            self._preempted[engine] = self._preempted.get(engine, 0) + int(found[6])
        prompt, generated, usage = numbers
        self._run.engine.add(
            t_s=now_s, engine=engine, kind="console", window_s=window_s, running=int(found[4]), waiting=int(found[5]),
            kv_usage=usage / 100, gen_tok_s=generated, prefill_tok_s=prompt, preemptions=self._preempted.get(engine, 0),
        )  # fmt: skip
        self.count.used += 1

    def _iteration(self, line: Line) -> None:
        found = ITERATION.search(line.text)
        elapsed_ms = float_or_nan(found[7]) if found else -1.0
        if found is None or not 0 < elapsed_ms < 1e7:
            self.count.damaged["iteration line that is cut or garbled"] += 1
            return
        engine = f"{line.origin}/{found[1] or '000'}".strip("/")
        number, requests, prefilled, decoding, tokens = (int(found[place]) for place in range(2, 7))
        usage = float_or_nan(found[8]) / 100 if found[8] else float("nan")
        joined = self._joined.setdefault(engine, _Joined())
        if number == joined.last:
            self.count.damaged["iteration line that stands twice"] += 1
            return
        self.count.used += 1
        if requests or prefilled or joined.count >= JOINED or (joined.count and number != joined.last + 1):
            self._close(engine)
            joined = self._joined[engine]
        joined.last = number
        now_s = self._clock.get(engine, 0.0) + elapsed_ms / 1e3
        self._clock[engine] = now_s
        if requests or prefilled:
            seconds = elapsed_ms / 1e3
            self._run.engine.add(
                t_s=now_s, engine=engine, kind="iterations", window_s=seconds, iterations=1, running=decoding,
                kv_usage=usage, gen_tok_s=tokens / seconds, prefill_tok_s=prefilled / seconds,
                prefill_requests=requests,
            )  # fmt: skip
        elif decoding:
            joined.count += 1
            joined.seconds += elapsed_ms / 1e3
            joined.tokens += decoding
            joined.usage += usage

    def _close(self, engine: str) -> None:
        joined = self._joined.get(engine)
        if joined is not None and joined.count:
            self._run.engine.add(
                t_s=self._clock[engine], engine=engine, kind="iterations", window_s=joined.seconds,
                iterations=joined.count, running=joined.tokens / joined.count, kv_usage=joined.usage / joined.count,
                gen_tok_s=joined.tokens / joined.seconds, prefill_tok_s=0.0, prefill_requests=0,
            )  # fmt: skip
        last = joined.last if joined else -1
        self._joined[engine] = _Joined()
        self._joined[engine].last = last

    def end(self) -> None:
        """Hand on what is still on its way."""
        for engine in list(self._joined):
            self._close(engine)


def float_or_nan(text: str) -> float:
    """Return a number, NaN for what is none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def read(path: Path, run: ImportedRun, progress: ReadProgress | None = None) -> None:
    """Read a log into *run*."""
    log = VllmLog(run, path)
    for line in text_lines(path, log.count, progress):
        log.line(line)
    log.end()
