"""The code that a run uses: the modules reached from those its configuration names, stripped of all that is only read.

Parsing forty modules takes longer than all else before a run, so what was found in one stands in the user's cache
under the digest of its text; a cache that is missing or damaged is made anew.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any, NamedTuple

from simrl.config.import_path import search_here
from simrl.runs.atomic import atomic_file

OURS = "simrl"
PACKAGE = Path(__file__).parents[1]
CACHE_FILE = "sources.json"
MOST_CACHED = 2000
"""Modules the cache keeps, those that came last."""
FORM = "1"
"""Of what is kept: a change of it makes all of the cache anew."""


class Source(NamedTuple):
    """What a module's text holds."""

    digest: str
    """Of its code, without docstrings, comments, layout, types for type checkers and the messages of errors."""
    imports: tuple[str, ...]
    """Names that may be modules, relative ones with their dots."""


class _Code(ast.NodeTransformer):
    """Takes away what cannot change a result."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Drop docstrings, of fields too."""
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        """Drop what only type checkers import."""
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Drop what an error says: a run that ends on it has no result."""
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Drop what a refusal says, wherever it is made."""
        if isinstance(node.func, ast.Name) and node.func.id == "ConfigError":
            return node.func
        return self.generic_visit(node)


def read_source(text: bytes) -> Source:
    """Return what a module's text holds."""
    tree = _Code().visit(ast.parse(text))
    digest = hashlib.sha256(ast.unparse(tree).encode()).hexdigest()
    return Source(digest, tuple(dict.fromkeys(_imports(tree))))


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield base
            yield from (f"{base}{'' if base.endswith('.') else '.'}{name.name}" for name in node.names)


def cache_file() -> Path:
    """Return the file of what was found before."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / OURS / CACHE_FILE


class SourceCache:
    """What was found in texts before, by the digest of the text."""

    def __init__(self, file: Path):
        self._file = file
        self._known: dict[str, Source] = {}
        self._news = False
        with suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
            content: Any = json.loads(file.read_text())
            if content["form"] == FORM:
                self._known = {
                    str(raw): Source(str(d), tuple(map(str, names))) for raw, (d, names) in content["sources"].items()
                }

    def source(self, text: bytes) -> Source:
        """Return what *text* holds."""
        raw = hashlib.sha256(text).hexdigest()
        if raw not in self._known:
            self._known[raw] = read_source(text)
            self._news = True
        return self._known[raw]

    def save(self) -> None:
        """Write the file if there is anything new; a folder that takes nothing costs time, no result."""
        if not self._news:
            return
        with suppress(OSError), atomic_file(self._file) as aside:
            newest = dict(list(self._known.items())[-MOST_CACHED:])
            aside.write_text(json.dumps({"form": FORM, "sources": newest}))


def file_of(module: str) -> Path | None:
    """Return a module's file, without importing it; None if there is none."""
    top, *parts = module.split(".")
    if top == OURS:
        places = [PACKAGE]
    else:
        spec = find_spec(top)
        if spec is None:
            return None
        if spec.submodule_search_locations is None:
            return Path(spec.origin) if spec.origin and not parts else None
        places = [Path(place) for place in spec.submodule_search_locations]
    for place in places:
        inside = place.joinpath(*parts)
        for file in (inside / "__init__.py", *([inside.with_suffix(".py")] if parts else [])):
            if file.is_file():
                return file
    return None


def code_of(roots: Iterable[str], unused: Mapping[str, set[str]]) -> dict[str, str]:
    """Return module -> digest of its code, of *roots* and all that they import, by name.

    Followed are SimRL's own modules, and those of a root's own package: other libraries have versions, not edits.

    Args:
        roots: modules.
        unused: importing module -> modules which this run has no use for.
    """
    search_here()
    cache, found, waiting = SourceCache(cache_file()), dict[str, str](), deque(roots)
    seen, files = set[str](), set[str]()
    while waiting:
        module = waiting.popleft()
        package = module.rpartition(".")[0]
        file = None if module in seen or package in files else file_of(module)
        seen.add(module)
        if file is None:  # a name within a module, which was asked for before
            continue
        text = file.read_bytes()
        if file.suffix != ".py":  # compiled: nothing to read in it
            found[module] = hashlib.sha256(text).hexdigest()
            continue
        found[module], imports = cache.source(text)
        if file.name == "__init__.py":
            package = module
        else:
            files.add(module)
        names = [resolve_name(name, package) if name.startswith(".") else name for name in imports]
        waiting += [
            name
            for name in (*names, module.rpartition(".")[0])  # importing a module runs the packages it lies in
            if name.partition(".")[0] in (OURS, module.partition(".")[0])
            and name != OURS  # the package's front door opens on all of it
            and name not in unused.get(module, ())
        ]
    cache.save()
    return dict(sorted(found.items()))
