"""SGLang's log: a line every 40 decode steps and one a prefill batch; forms read in the 0.5.23 wheel."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from simrl.own_run.imported_run import ImportedRun
from simrl.own_run.text_lines import Line, ReadProgress, looked_at, number_of, text_lines

NAME = "sglang"
HEAD = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)((?: [A-Z]{2}\d+)*)\]")
POOL = re.compile(r"max_total_num_tokens=(\d+)")
BATCH = re.compile(r" batch(?: \[\d+\])?, ")
RETRACTED = re.compile(r"#retracted_reqs: (\d+)")
DECODE_STEPS = 40
"""decode_log_interval's default: decode steps a line."""
FIELD = re.compile(r"(?:^|, )([#\w][\w #()/-]*): ([^,]+)")


def sniff(path: Path) -> bool:
    """Return whether a file has lines of an SGLang scheduler."""
    text = looked_at(path)
    return "Decode batch" in text or "Prefill batch" in text


def _fields(text: str) -> dict[str, float | None]:
    return {name.strip(): number_of(value.strip()) for name, value in FIELD.findall(text)}


class SglangLog:
    """Reads the lines of one SGLang log."""

    def __init__(self, run: ImportedRun, path: Path):
        self._run = run
        self.count = run.opened(path, NAME)
        self._retracted: dict[str, int] = {}
        self._last: dict[str, str] = {}

    def line(self, line: Line) -> None:
        """Take in a line; others' lines are left alone."""
        text = line.text
        if (found := POOL.search(text)) is not None:
            self._run.pools[line.origin or "0"] = (float(found[1]), 1)
            self.count.used += 1
            return
        kind = "decode_batch" if "Decode batch" in text else "prefill_batch" if "Prefill batch" in text else None
        retracted = RETRACTED.search(text)
        if kind is None and retracted is None:
            return
        head = HEAD.search(text)
        if head is None:
            self.count.damaged["batch line without its time"] += 1
            return
        engine = f"{line.origin}/{head[2].strip()}".strip("/") or "0"
        if retracted is not None:
            self._retracted[engine] = self._retracted.get(engine, 0) + int(retracted[1])
            self.count.used += 1
            return
        if self._last.get(engine) == text:
            self.count.damaged["batch line that stands twice"] += 1
            return
        self._last[engine] = text
        self._batch(engine, kind or "", head[1], BATCH.split(text, 1)[-1])

    def _batch(self, engine: str, kind: str, stamp: str, text: str) -> None:
        fields = _fields(text)
        try:
            t_s = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
        except ValueError:
            self.count.damaged["batch line without its time"] += 1
            return
        running, usage = fields.get("#running-req"), fields.get("token usage")
        waiting = fields.get("#queue-req")
        common = {"t_s": t_s, "engine": engine, "running": running, "waiting": waiting, "kv_usage": usage}
        common["preemptions"] = self._retracted.get(engine, 0)
        if kind == "decode_batch":
            rate = fields.get("gen throughput (token/s)")
            if not running or not rate or rate <= 0:
                self.count.damaged["decode line that is cut or garbled"] += 1
                return
            self._run.engine.add(
                **common, kind=kind, window_s=DECODE_STEPS * running / rate, iterations=DECODE_STEPS, gen_tok_s=rate,
                prefill_tok_s=0.0, prefill_requests=0, context_tokens=fields.get("#token"),
            )  # fmt: skip
        else:
            new, rate = fields.get("#new-token"), fields.get("input throughput (token/s)")
            if new is None:
                self.count.damaged["prefill line that is cut or garbled"] += 1
                return
            window_s = new / rate if rate and new else None
            self._run.engine.add(
                **common, kind=kind, window_s=window_s, iterations=1, gen_tok_s=0.0, prefill_tok_s=rate,
                prefill_requests=fields.get("#new-seq"),
            )  # fmt: skip
        self.count.used += 1


def read(path: Path, run: ImportedRun, progress: ReadProgress | None = None) -> None:
    """Read a log into *run*."""
    log = SglangLog(run, path)
    for line in text_lines(path, log.count, progress):
        log.line(line)
