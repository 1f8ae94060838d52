"""The table of all mechanisms in docs/mechanisms.md, from the configurations themselves.

``python -m simrl.config.mechanism_table`` prints it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from simrl.config.compose import config_folder
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


def rule_text(spec: Any) -> str:
    """Return a rule and its parameters as they stand in the file; both forms if there are two."""
    if "article" in spec:
        return f"{rule_text(spec['article'])}; upstream: {rule_text(spec['upstream'])}"
    values = {key: str(value) for key, value in spec.items() if key != "rule" and value is not None}
    given = ", ".join(f"{key} = {value}" for key, value in values.items())
    for verbose, short in (("${framework.", "${"), ("${minus:${eta},1}", "eta - 1"), ("${eta}", "eta")):
        given = given.replace(verbose, short)
    for name in ("warmup", "groups_per_batch", "group_size", "rollout.instances"):
        given = given.replace(f"${{{name}}}", name)
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
                f"`{plain['upstream_knob']}`",
                plain["bounds"],
                bound_text(framework),
                rule_text(plain["admission"]),
                rule_text(plain["cancellation"]),
                rule_text(plain["sampling"]),
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
