"""The table of all mechanisms in docs/mechanisms.md, from the configurations themselves.

``python -m simrl.model.control.mechanism_table`` prints it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from simrl.config.option_folders import config_folder
from simrl.config.parameters import parameters_of
from simrl.model.control.rules import rule_class
from simrl.text_table import markdown_table

HEADER = (
    "framework",
    "`framework.eta` is upstream's",
    "what it really bounds",
    "strict bound",
    "L1 admission",
    "L2 cancelling",
    "L3 sampling",
    "weight update",
    "article and upstream differ",
)


def rule_text(layer: str, spec: Any) -> str:
    """Return a rule and its parameters as they stand in the file, without those at the rule's default; both forms."""
    if "article" in spec:
        return f"{rule_text(layer, spec['article'])}; upstream: {rule_text(layer, spec['upstream'])}"
    known = parameters_of(rule_class(layer, spec["rule"], layer))
    values = {key: str(spec[key]) for key in known if key in spec and spec[key] != known[key].default}
    given = ", ".join(f"{key} = {value}" for key, value in values.items())
    for verbose, short in (("${framework.", "${"), ("${minus:${eta},1}", "eta - 1"), ("${eta}", "eta")):
        given = given.replace(verbose, short)
    given = re.sub(r"\$\{([\w.]+)\}", r"\1", given)
    return f"{spec['rule']}({given})" if given else str(spec["rule"])


def bound_text(framework: DictConfig) -> str:
    """Return the promised bound of both forms."""

    def promised(offset: int | None) -> str:
        return "no" if offset is None else f"eta{offset:+d}".removesuffix("+0").replace("-", " - ")

    article, upstream = promised(framework.get("bound_offset")), promised(framework.get("upstream_bound_offset"))
    two_forms = any("article" in framework[layer] for layer in ("admission", "sampling"))
    return f"{article}; upstream: {upstream}" if two_forms and upstream != article else article


def rows() -> list[tuple[str, ...]]:
    """Return one row a framework, in order of name."""
    out: list[tuple[str, ...]] = []
    for path in sorted((Path(config_folder()) / "framework").glob("*.yaml")):
        framework = OmegaConf.load(path)
        assert isinstance(framework, DictConfig)
        plain: Any = OmegaConf.to_container(framework, resolve=False)
        out.append(
            (
                plain["name"],
                f"`{plain['upstream_knob']}`" if "upstream_knob" in plain else "no knob",
                plain["bounds"],
                bound_text(framework),
                rule_text("admission", plain["admission"]),
                rule_text("cancellation", plain["cancellation"]),
                rule_text("sampling", plain["sampling"]),
                plain["weight_update"],
                plain.get("differs", ""),
            )
        )
    return out


def full_table() -> str:
    """Return the table of docs/mechanisms.md."""
    return markdown_table(HEADER, rows())


def short_table() -> str:
    """Return the README's table: knob, what it bounds, strict or not."""
    return markdown_table(HEADER[:4], [row[:4] for row in rows()])


if __name__ == "__main__":
    print(full_table())  # noqa: T201
