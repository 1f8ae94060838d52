"""Odd inputs from a seed: override strings, sweep files and trace files that only a stranger would write.

No input may be a run that rightly takes long: sizes are tiny, or so large that they must be refused.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.fuzz.odd_traces import trace_file

BASE = ("versions=1", "groups_per_batch=2", "group_size=2", "workload.mean_response_tokens=500")
SIZES = ("versions", "groups_per_batch", "group_size", "workload.batches")
KINDS = (("value", 10), ("choice", 2), ("command", 1), ("multirun", 2), ("sweep", 4), ("trace", 5))
"""What is made, and how often."""
CHOSEN = (
    (), (), (), ("framework=roll",), ("framework=prime_rl",), ("framework=deadline",), ("workload=quantiles",),
    ("trainer=megatron_lm", "model=qwen3_30b_a3b", "hardware=b200"), ("trainer=fsdp", "framework=trl"),
    ("workload=slow_batches",), ("hardware=h100", "framework=psrl"), ("framework=verl_drop",),
    ("framework=nemo_windowed",),
)  # fmt: skip
"""Options that an odd value meets."""
VALUES = (
    "null", "true", "false", "yes", "-1", "0", "1", "2", "3", "1.5", "0.5", "1e-9", "nan", "inf", "-inf", ".nan",
    ".inf", "1e300", "-1e300", "1e-300", "5e-324", "-0.0", "1_000", "0x10", "1e", "+5", "--5",
    "99999999999999999999", "9223372036854775807", "9223372036854775808", "2147483648", "-9223372036854775809",
    "4611686018427387904", "''", '""', "'", '"', "abc", "\xfc", "'\xfc'", "\xb2", "\u0663", "'\u202e'", "\ufffd",
    "\x1b[31m", "'\x1b[31m'", "\x00", "a\x00b", "\n", "'a\nb'", "[]", "[[]]", "[1,[2,[3,[4]]]]", "[1", "1]", "{}",
    "{a:1}", "{a:{b:[1]}}", "{a", "{1:2}", "(", ")", "()", "\\", "\\\\", "=", "==", ",", ",,", "1,2", "a,b",
    "range(3)", "range(3,0)", "glob(*)", "choice(1,2)", "sort(3,1)", "shuffle(1,2)", "int(3)", "str(3)", "float(3)",
    "bool(3)", "int('x')", "int(1e300)", "json_str({})", "${nope}", "${seed}", "${hardware.gpus}", "${oc.env:NOPE}",
    "${oc.env:HOME}", "${oc.create:1}", "${.}", "${..}", "${...seed}", "${", "}", "${", "${}", "${a:}", "${now:%Y}",
    "${minus:1,2}", "${minus:a,b}", "${minus:1}", "${hugging_face:x}", "${random:}", "${hydra:job.num}", "???", "*",
    "&", "*a", "&a", "!!str", "!!int", "2026-01-01", "12:30:45", "on", "off", "~", "%", "@", "#", "a#b", "a:b", ":",
    ":a", "os:system", "nope.nope:Nope", "json:JSONDecoder", "../..", "/dev/null", "/dev/zero",
)  # fmt: skip
PLAIN = (
    "0", "1", "2", "3", "-1", "1e300", "1e-9", "nan", "inf", "0.5", "0.999", "1.0", "1.5", "7", "16", "1000", "1e5",
    "1e9", "1e12", "1e16", "1e-300", "true", "false",
)  # fmt: skip
"""Values that many keys take, the first eight such as no long run comes of."""
HYDRA_KEYS = (
    "hydra.launcher.backend", "hydra.launcher.batch_size", "hydra.launcher.max_nbytes", "hydra.launcher.mmap_mode",
    "hydra.launcher.pre_dispatch", "hydra.launcher.prefer", "hydra.launcher.require", "hydra.launcher.temp_folder",
    "hydra.launcher.timeout", "hydra.launcher.verbose", "hydra.launcher._target_", "hydra.launcher.nope",
    "hydra.launcher", "hydra/launcher", "hydra/sweeper", "hydra.sweeper.max_batch_size", "hydra.sweeper.params",
    "hydra.sweeper", "hydra.sweep.subdir", "hydra.run.dir", "hydra.job.name", "hydra.job.chdir", "hydra.job.num",
    "hydra.job.env_set", "hydra.job.env_copy", "hydra.job", "hydra.mode", "hydra.verbose", "hydra.output_subdir",
    "hydra.job_logging", "hydra.hydra_logging", "hydra/job_logging", "hydra.searchpath", "hydra.callbacks",
    "hydra.callbacks.report", "hydra.help.template", "hydra.runtime.output_dir", "hydra", "hydra.nope", "experiment",
    "infeasible", "resume", "fail_fast", "run.timeout_s", "run.retries", "run",
)  # fmt: skip
"""What decides how a sweep is carried out."""
FACTORS = (1e-6, 0.01, 0.1, 0.5, 0.9, 1.1, 2, 3, 4, 7.5, 10, 100, 1e4, 1e9)
WORDS = (*VALUES, " ", "", "x" * 5000, "[" * 60 + "]" * 60, "{a:" * 60 + "1" + "}" * 60, "9" * 4000, "1" + "0" * 400)


@dataclass(frozen=True)
class OddInput:
    """One input."""

    kind: str
    """value | choice (overrides) | command, multirun (a command line) | sweep | trace (a file)."""
    arguments: tuple[str, ...] = ()
    suffix: str = ""
    content: bytes = b""
    """Of the file, if there is one."""

    def __str__(self) -> str:
        return f"{self.kind}: {ascii(self.arguments)[:400]} {self.suffix} {self.content[:400]!r}"


@dataclass(frozen=True)
class Known:
    """What a configuration has."""

    keys: Sequence[str]
    """Dotted."""
    numbers: Mapping[str, float]
    """Those that have a number, and it."""
    options: Mapping[str, Sequence[str]]
    """Group -> its options."""


def odd_input(seed: int, known: Known) -> OddInput:
    """Return the input of a seed; the same seed gives the same input."""
    keys, options = known.keys, known.options
    chance = random.Random(seed)  # noqa: S311 - no secret
    (kind,) = chance.choices([name for name, _ in KINDS], [often for _, often in KINDS])
    if kind == "value":
        values = (odd_value(chance, keys, known.numbers) for _ in range(chance.choice((1, 1, 1, 2, 3))))
        return OddInput(kind, (*BASE, *chance.choice(CHOSEN), *values))
    if kind == "choice":
        return OddInput(kind, (*BASE, odd_choice(chance, options)))
    if kind == "command":
        return OddInput(kind, odd_command(chance, keys, options))
    if kind == "multirun":
        return OddInput(kind, odd_multirun(chance, keys))
    if kind == "sweep":
        return OddInput(kind, (), ".yaml", sweep_file(chance, keys))
    suffix, content, columns = trace_file(chance, WORDS)
    return OddInput(kind, (*BASE[:3], "workload=trace", *columns), suffix, content)


def odd_value(chance: random.Random, keys: Sequence[str], numbers: Mapping[str, float] | None = None) -> str:
    """Return an override that sets a value; if *numbers* are given, half of the time one of these to one like it."""
    if numbers and chance.random() < 0.5:
        key = chance.choice([name for name in numbers if name not in SIZES])
        like = numbers[key] * chance.choice(FACTORS)
        return f"{key}={round(like) if isinstance(numbers[key], int) else like}"
    key = chance.choice(keys)
    if chance.random() < 0.1:
        key = mangled(chance, key)
    value = chance.choice(WORDS)
    if chance.random() < 0.5:
        value = chance.choice(PLAIN[:8] if key in SIZES else PLAIN)
    elif chance.random() < 0.15:
        value = f"{chance.choice(('-', '', '', '1e'))}{chance.choice((0, 1, 2, 3, 9, 10**10, 10**19, 10**300))}"
    if chance.random() < 0.1:
        value = f"[{value},{chance.choice(WORDS)}]"
    return f"{chance.choice(('', '', '', '', '', '+', '++', '~'))}{key}={value}"


def mangled(chance: random.Random, key: str) -> str:
    """Return a key that is none, most likely."""
    at = chance.randrange(len(key) + 1)
    insert = chance.choice(("x", ".", "..", " ", "[0]", "[", "ü", "\0", "/", "@", "=", "$", "\n", "-", "'"))
    return chance.choice((key[:at] + insert + key[at:], key[:at], key[at:], key.upper(), f"{key}.{key}", f"{key}.x"))


def odd_choice(chance: random.Random, options: Mapping[str, Sequence[str]]) -> str:
    """Return an override that chooses an option, or looks as if it did."""
    group, other = chance.choice([*options]), chance.choice([*options])
    value = chance.choice((*options[other], *WORDS[:60], "schema/base", f"../{other}/{options[other][0]}", "null"))
    form = chance.choice(
        ("{g}={v}", "{g}={v}", "{g}={v}", "+{g}={v}", "~{g}", "~{g}={v}", "{g}@{o}={v}", "{g}@x={v}",
         "+{g}@_global_={v}", "{g}/schema={v}", "+{g}/{o}={v}", "{g}=[{v}]",
         "{g}={{name:{v}}}", "{g}.name={v}", "++{g}={v}")
    )  # fmt: skip
    return form.format(g=group, o=other, v=value)


def odd_command(chance: random.Random, keys: Sequence[str], options: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return a command line that starts no process of its own."""
    command = chance.choice(
        ("", "", "plan", "status", "collect", "compare", "show", "trace", "bogus", "Plan", "-x", "--")
    )
    words = [
        odd_value(chance, keys),
        odd_choice(chance, options),
        chance.choice(WORDS),
        "--json",
        "--by",
        "--base",
    ]
    given = [word for word in chance.sample(words, chance.randint(0, 3)) if word not in ("--run", "-m")]
    return (*((command,) if command else BASE), *given)


def odd_multirun(chance: random.Random, keys: Sequence[str]) -> tuple[str, ...]:
    """Return a command line of ``-m`` that starts no process of its own and writes where it is."""
    swept = f"{chance.choice((*keys, 'seed', 'framework.eta'))}={','.join(chance.choices(WORDS, k=2))}"
    of_hydra = f"{chance.choice(('', '', '', '+', '++', '~'))}{chance.choice(HYDRA_KEYS)}={chance.choice(WORDS)}"
    given = chance.choice((("seed=0,1", of_hydra), ("seed=0,1", of_hydra), (swept,), (swept, odd_value(chance, keys))))
    return ("-m", "hydra.launcher.n_jobs=1", "hydra.sweep.dir=swept", *BASE, *given)


def sweep_file(chance: random.Random, keys: Sequence[str]) -> bytes:
    """Return the bytes of a sweep file."""

    def scalar() -> str:
        odd = (
            "0..2",
            "3..1",
            "0..999999999999",
            "-1..1",
            "1..",
            "'0..1'",
            "1e3..2",
            "[]",
            "[[1, 2]]",
            "{a: 1}",
            "0, 1",
        )
        return chance.choice((*odd, *WORDS))

    def block() -> str:
        entries = (f"{chance.choice((*keys, *WORDS[:40]))}: {scalar()}" for _ in range(chance.randint(0, 3)))
        return chance.choice((f"{{{', '.join(entries)}}}", scalar(), ""))

    names = ("a", "b", "1", "true", "null", "''", "a/b", "'../x'", "ü", "1.5", "[a]", "{a: b}", "'\\0'", "'a b'")
    lines = [
        f"seeds: {scalar()}",
        f"shared: {block()}",
        f"run: {block()}",
        f"run: {{timeout_s: {scalar()}, retries: {scalar()}}}",
    ]
    lines += [f"fail_fast: {scalar()}", f"{scalar()}: {scalar()}"]
    kept = chance.sample(lines, chance.randint(0, 3))
    size = "shared: {versions: 1, groups_per_batch: 2, group_size: 2}"
    blocks = [f"  {chance.choice(names)}: {block()}" for _ in range(chance.randint(0, 3))]
    text = "\n".join(
        [
            *kept,
            *([] if "shared" in "".join(kept) else [size]),
            chance.choice(("blocks:", "blocks:", "block:")),
            *blocks,
        ]
    )
    content = text.encode("utf-8", "surrogatepass")
    return mutated(chance, content) if chance.random() < 0.2 else content


def mutated(chance: random.Random, content: bytes) -> bytes:
    """Return bytes with a few of them changed, or cut."""
    changed = bytearray(content or b" ")
    for _ in range(chance.randint(1, 4)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed[: chance.choice((len(changed), len(changed), len(changed) // 2))])
