"""The layers of SimRL: imports point down, nothing goes in circles, no file is long, no module is left over."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from simrl.cli.commands import NAMES
from simrl.model.control.controllers import CONTROLLERS
from simrl.model.control.rule_names import RULES
from simrl.model.engine.engines import ENGINES
from simrl.model.placement.placements import PLACEMENTS
from tests.import_graph import Graph, circles, import_graph, imported_names, modules_in, named_in, reachable

ROOT = Path(__file__).parent.parent
LAYERS = (
    ("cli",),
    ("api",),
    ("calibration", "own_run", "timeline", "plots"),
    ("sweep",),
    ("runs",),
    ("model",),
    ("config",),
    ("terminal", "stats", "text_table", "version"),
)
"""Parts of simrl/ from the top: each imports those below it, and none beside or above it."""
MODEL_LAYERS = (
    ("simulation",),
    ("trainer", "feasibility", "extent", "placement"),
    ("control",),
    ("engine", "workload", "cost"),
)
"""Parts of simrl/model/ from the top: each imports those beside and below it. What is not named here serves all."""
ABOVE_ALL = ("simrl", "simrl.__main__")
"""The package itself and its start may import from every layer, and nothing imports them."""
FOREIGN = ("sweeps", "tests", "notebooks", "docs")
"""Folders that use simrl and that it must not know."""
MOST_LINES = 400
CODE = ("simrl", "sweeps", "tests", "notebooks")
STATISTICS = "simrl/stats.py"
SPREADS = {"std", "var", "sem", "stdev", "pstdev", "variance", "pvariance", "nanstd", "nanvar"}
"""Functions whose results are statistics of a sample."""
STATISTIC = re.compile(r"(^|_)(quantile|interval|variance|stdev|deviation|percentile)(_|$)")
"""Names of functions that compute one."""
DRAWN = ("interval_entry",)
"""Functions named after a statistic that they draw."""
STARTS = (
    *("simrl", "simrl.__main__", *(f"simrl.cli.{name}" for name in NAMES)),
    *("sweeps.article", "sweeps.deadline_table", "sweeps.steady", "sweeps.validation"),
)
"""What people start; commands are loaded by their name."""
CALLED_BY_USERS = ("simrl.model.workload.statistics",)
"""docs/workload.md has its readers call it."""
TWICE = {
    "__init__": "every package has one",
    "__main__": "every program has one",
    "protocol": "an interface stands beside its implementations, in the folder that is named after it",
    "engine": "rollout engines, and vLLM's among them",
    "control": "staleness control, and the control of one framework in it",
}
"""Names that two modules or folders may have, and why. Commands aside: their modules have the commands' names."""


def part_of(module: str, depth: int) -> str:
    """Return the part of the package a module lies in: its name at a depth, empty if it lies above."""
    return ".".join(module.split(".")[depth : depth + 1])


def rank_of(part: str, layers: Sequence[Sequence[str]]) -> int | None:
    """Return a part's layer, 0 for the top; None if it has none."""
    return next((number for number, parts in enumerate(layers) if part in parts), None)


def upward_imports(graph: Graph) -> list[str]:
    """Return the imports that point up or sideways between the parts of simrl/."""
    return [
        f"{name} imports {target}"
        for name, targets in graph.items()
        for target in sorted(targets)
        if name not in ABOVE_ALL and (target in ABOVE_ALL or _points_up(name, target))
    ]


def _points_up(name: str, target: str) -> bool:
    part, other = part_of(name, 1), part_of(target, 1)
    rank, below = rank_of(part, LAYERS), rank_of(other, LAYERS)
    assert rank is not None, f"{name}: say in LAYERS where it stands"
    assert below is not None, f"{target}: say in LAYERS where it stands"
    if part == other == "model":
        own, used = (rank_of(part_of(module, 2), MODEL_LAYERS) for module in (name, target))
        return own is not None and used is not None and used < own
    return below < rank or (below == rank and part != other)


def foreign_imports(modules: Mapping[str, Path]) -> list[str]:
    """Return the imports of what uses simrl."""
    return [
        f"{name} imports {imported}"
        for name, file in modules.items()
        for imported in imported_names(name, file)
        if imported.split(".")[0] in FOREIGN
    ]


def long_files(root: Path) -> list[str]:
    """Return the files of code that are too long."""
    files = [file for folder in CODE for file in sorted((root / folder).rglob("*.py"))]
    lengths = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    return [f"{file.relative_to(root)}: {lines}" for file, lines in lengths.items() if lines > MOST_LINES]


def statistics_in(file: Path) -> Iterator[str]:
    """Yield where a file computes a statistic of a sample."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and STATISTIC.search(node.name) and node.name not in DRAWN:
            yield f"{file.name}:{node.lineno} defines {node.name}"
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in SPREADS or any(keyword.arg == "ddof" for keyword in node.keywords):
                yield f"{file.name}:{node.lineno} calls {called}"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            source = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if any(name.split(".")[0] == "scipy" for name in source):
                yield f"{file.name}:{node.lineno} imports {source[0]}"


def names_twice(modules: Mapping[str, Path]) -> dict[str, list[str]]:
    """Return the names that several modules or folders have, without those that may."""
    bearers = defaultdict(set)
    for module, file in modules.items():
        folder = module if file.name == "__init__.py" else module.rpartition(".")[0]
        bearers[folder.rpartition(".")[2]].add(folder)
        if not module.startswith("simrl.cli."):
            bearers[file.stem if file.name == "__init__.py" else module.rpartition(".")[2]].add(module)
    return {name: sorted(paths) for name, paths in bearers.items() if len(paths) > 1 and name not in TWICE}


def texts_that_name_modules() -> list[str]:
    """Return what names modules as text: configuration files, and the import paths of what they choose from."""
    files = (*(ROOT / "conf").rglob("*.yaml"), ROOT / "pyproject.toml")
    return [
        *(file.read_text(encoding="utf-8") for file in files),
        *(" ".join(named.values()) for named in (*RULES.values(), CONTROLLERS, ENGINES, PLACEMENTS)),
    ]


@pytest.fixture(scope="module")
def modules() -> dict[str, Path]:
    """Give the modules of simrl and sweeps."""
    return modules_in(ROOT, "simrl", "sweeps")


def test_imports_point_down() -> None:
    """No module of simrl imports one of a layer above or beside its own, not even inside a function or for types."""
    assert upward_imports(import_graph(modules_in(ROOT, "simrl"))) == []


def test_nothing_goes_in_circles(modules: dict[str, Path]) -> None:
    """No two modules import each other, by whatever way, imports for types included."""
    assert circles(import_graph(modules)) == []


def test_simrl_does_not_know_who_uses_it() -> None:
    """Nothing in simrl imports sweeps, tests, notebooks or docs."""
    assert foreign_imports(modules_in(ROOT, "simrl")) == []


def test_no_file_is_long() -> None:
    """No file of code has more than 400 lines."""
    assert long_files(ROOT) == []


def test_statistics_have_one_place(modules: dict[str, Path]) -> None:
    """Spreads, quantiles and intervals of samples are computed in simrl/stats.py alone."""
    found = [place for file in modules.values() if file != ROOT / STATISTICS for place in statistics_in(file)]
    assert found == []


def test_no_module_is_left_over(modules: dict[str, Path]) -> None:
    """Every module serves a command, the public API, the article or the docs; tests do not count."""
    users = {**modules_in(ROOT, "docs", "notebooks"), **modules}
    starts = {
        *STARTS,
        *CALLED_BY_USERS,
        *named_in(texts_that_name_modules(), modules),
        *(users.keys() - modules.keys()),
    }
    found = reachable(import_graph(users), starts)
    packages = {name for name, file in modules.items() if file.name == "__init__.py"}
    assert modules.keys() - found - packages == set()


def test_one_name_one_thing(modules: dict[str, Path]) -> None:
    """No two modules or folders have one name, but for a few with a reason."""
    assert names_twice(modules) == {}


def tree(folder: Path, **files: str) -> dict[str, Path]:
    """Write a small package simrl, ``__`` in a name standing for a folder; return its modules."""
    for name, text in files.items():
        file = folder.joinpath("simrl", *name.split("__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return modules_in(folder, "simrl")


@pytest.mark.parametrize(
    ("files", "wrong"),
    [
        ({"runs__run": "from simrl.sweep.grid import Grid", "sweep__grid": ""}, True),
        ({"runs__run": "def f():\n    import simrl.sweep.grid", "sweep__grid": ""}, True),
        ({"runs__run": "if TYPE_CHECKING:\n    from simrl.sweep import grid", "sweep__grid": ""}, True),
        ({"runs__run": "from ..sweep import grid", "sweep__grid": ""}, True),
        ({"plots__bars": "from simrl.timeline import events", "timeline__events": ""}, True),
        ({"model__engine__state": "from simrl.model.control import rule", "model__control__rule": ""}, True),
        ({"model__trainer": "import simrl.model.simulation", "model__simulation": ""}, True),
        ({"sweep__grid": "import simrl.runs.run", "runs__run": "import simrl.runs.lock", "runs__lock": ""}, False),
        ({"model__control__rule": "from simrl.model.engine import state", "model__engine__state": ""}, False),
    ],
)  # fmt: skip
def test_an_upward_import_is_found(files: dict[str, str], wrong: bool, tmp_path: Path) -> None:
    """Wherever and however it is written, an import from above or beside is found; one from below is none."""
    assert bool(upward_imports(import_graph(tree(tmp_path, **files)))) is wrong


def test_a_circle_is_found(tmp_path: Path) -> None:
    """Three modules that import each other in turn are a circle, though the last does so for types only."""
    ring = {"a": "import simrl.b", "b": "from simrl import c", "c": "if TYPE_CHECKING:\n    import simrl.a", "d": ""}
    assert circles(import_graph(tree(tmp_path, **ring))) == [["simrl.a", "simrl.b", "simrl.c"]]
    assert circles(import_graph(tree(tmp_path, c="import simrl.d"))) == []


def test_foreign_imports_and_long_files_are_found(tmp_path: Path) -> None:
    """An import of tests is found, and so is the 401st line."""
    assert foreign_imports(tree(tmp_path, a="from tests.conftest import x")) == ["simrl.a imports tests.conftest.x"]
    tree(tmp_path, b="x = 1\n" * 400, c="x = 1\n" * 401)
    assert long_files(tmp_path) == ["simrl/c.py: 401"]


@pytest.mark.parametrize(
    "text",
    ["def t_quantile(p): ...", "def _interval(values): ...", "x.std()", "np.var(x)", "np.mean(x, ddof=1)",
     "from statistics import stdev\nstdev(x)", "import scipy.stats"],
)  # fmt: skip
def test_a_statistic_elsewhere_is_found(text: str, tmp_path: Path) -> None:
    """A formula of its own, a library's spread or quantile of a distribution is found."""
    (file,) = tree(tmp_path, a=text).values()
    assert list(statistics_in(file))


def test_a_module_left_over_is_found(tmp_path: Path) -> None:
    """What only a text of the configuration names is in use; what nobody names is left over."""
    modules = tree(tmp_path, a="from simrl.b import x", b="", c="", d="")
    starts = {"simrl.a", *named_in(["_target_: simrl.c.Callback"], modules)}
    assert modules.keys() - reachable(import_graph(modules), starts) == {"simrl.d"}


def test_a_name_that_two_have_is_found(tmp_path: Path) -> None:
    """Two modules, or a module and a folder, of one name are found; commands may be named after what they do."""
    twice = {"plots__report": "", "runs__report": "", "runs__plots": "", "cli__report": ""}
    assert names_twice(tree(tmp_path, **twice)) == {
        "report": ["simrl.plots.report", "simrl.runs.report"],
        "plots": ["simrl.plots", "simrl.runs.plots"],
    }
