"""Which module imports which, read from the source: nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

Graph = Mapping[str, frozenset[str]]
"""Module -> the modules of the tree it imports."""


def modules_in(root: Path, *packages: str) -> dict[str, Path]:
    """Return every module of packages by its dotted name; a package stands for its ``__init__.py``."""
    files = [file for package in packages for file in sorted((root / package).rglob("*.py"))]
    return {module_name(file.relative_to(root)): file for file in files}


def module_name(file: Path) -> str:
    """Return the dotted name of a file, given relative to the root."""
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(modules: Mapping[str, Path]) -> Graph:
    """Return who imports whom: imports inside functions, under TYPE_CHECKING and of relative names included."""
    return {
        name: frozenset(
            target
            for imported in imported_names(name, file)
            if (target := nearest_module(imported, modules)) and target != name
        )
        for name, file in modules.items()
    }


def imported_names(module: str, file: Path) -> Iterator[str]:
    """Yield the dotted name of everything a module imports."""
    folder = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = folder.split(".")[: len(folder.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def nearest_module(name: str, modules: Iterable[str]) -> str | None:
    """Return the module that a dotted name is or lies in, None if it is not of this tree."""
    known = set(modules)
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def circles(graph: Graph) -> list[list[str]]:
    """Return the sets of modules that import each other, directly or by way of others; each sorted."""
    reach = {name: reachable(graph, graph[name]) for name in graph}
    found = {
        tuple(sorted({name} | {n for n in reach[name] if name in reach[n]})) for name in graph if name in reach[name]
    }
    return [list(circle) for circle in sorted(found)]


def reachable(graph: Graph, starts: Iterable[str]) -> set[str]:
    """Return the modules that are loaded, sooner or later, when *starts* are."""
    found: set[str] = set()
    waiting = [start for start in starts if start in graph]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found


def named_in(texts: Iterable[str], modules: Iterable[str]) -> set[str]:
    """Return the modules that texts name by their dotted path, as a configuration's ``_target_`` does."""
    known = set(modules)
    names = (name for text in texts for name in re.findall(r"\b[a-z_]\w*(?:\.\w+)+", text))
    return {module for name in names if (module := nearest_module(name, known))}
