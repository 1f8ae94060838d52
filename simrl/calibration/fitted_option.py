"""Fitted values as an option that a run can choose, and as text for a command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from simrl.config.yaml_text import plain_yaml_text

OPTIONS, OPTION = "options", "calibrated"
"""Folder of options in the output folder, and the name of the one in it."""


def option_file(values: Mapping[str, float], spec_file: Path) -> str:
    """Return the text of an option of the group experiment that sets *values*, by dotted key."""
    content: dict[str, Any] = {}
    for key, value in values.items():
        *groups, last = key.split(".")
        node = content
        for group in groups:
            node = node.setdefault(group, {})
        node[last] = value
    return f"# @package _global_\n# fitted by simrl calibrate {spec_file.name}\n{plain_yaml_text(content)}"


def usage(values: Mapping[str, float], output: Path) -> str:
    """Return the end of a report: how to run with *values*."""
    settings = " ".join(f"{key}={value!r}" for key, value in values.items())
    return (
        "\n## To run with these values\n\n"
        f"    simrl --config-dir {quote(str(output / OPTIONS))} experiment={OPTION}\n\n"
        "or, key by key,\n\n"
        f"    simrl {settings}\n"
    )
