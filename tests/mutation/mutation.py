"""A wrong change of one file, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

TABLE = Path(__file__).parent / "mutations.yaml"
REPOSITORY = Path(__file__).parents[2]


class StaleTableError(Exception):
    """The table does not fit the sources any more; the message has a line for each misfit."""


@dataclass(frozen=True)
class Mutation:
    """One fragment replaced by another."""

    name: str
    file: str
    """Path in the repository."""
    old: str
    """Stands once in the file."""
    new: str
    rule: str
    """What it breaks."""
    tests: tuple[str, ...]
    """Test files or tests, as pytest names them."""

    @property
    def compiled(self) -> bool:
        """Whether Numba compiles the file, so that its tests take longest."""
        return Path(self.file).name in ("state.py", "kv_cache.py", "saved_state.py", "scheduler.py", "stretch.py")

    def applied_to(self, source: str) -> str:
        """Return *source* with the change."""
        return source.replace(self.old, self.new)

    def misfit(self) -> str | None:
        """Return why the change cannot be made, None if it can."""
        file = REPOSITORY / self.file
        if not file.is_file():
            return f"{self.name}: no file {self.file}"
        found = file.read_text().count(self.old)
        if found != 1:
            return f"{self.name}: its old text stands {found} times in {self.file}, not once: {self.old.strip()}"
        missing = [test for test in self.tests if not (REPOSITORY / test.partition("::")[0]).is_file()]
        return f"{self.name}: no test file {', '.join(missing)}" if missing else None


def read_table(names: list[str]) -> list[Mutation]:
    """Return the mutations called *names*, all if none is named.

    Raises:
        StaleTableError: if a name is unknown or a change cannot be made.
    """
    table = yaml.safe_load(TABLE.read_text())
    if unknown := [f"{name}: no such mutation" for name in names if name not in table]:
        raise StaleTableError("\n".join(unknown))
    chosen = [
        Mutation(name, row["file"], row["old"], row["new"], row["rule"], tuple(row["tests"]))
        for name, row in table.items()
        if not names or name in names
    ]
    if misfits := [misfit for mutation in chosen if (misfit := mutation.misfit())]:
        raise StaleTableError("\n".join(misfits))
    return chosen
