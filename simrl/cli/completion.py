"""Completion at the shell: commands and what they take, beside the keys and options that Hydra completes.

``eval "$(simrl -sc install=bash)"`` (or zsh, fish) is Hydra's; its script asks ``simrl -sc query=bash`` with the
line typed so far in ``COMP_LINE``. Hydra knows no commands: it is asked for the line without them.
"""

from __future__ import annotations

from simrl.cli.commands import NAMES, parser_of

KEYS_FOLLOW = ("plan", "sweep")
"""Commands that take overrides."""


def complete(line: str) -> tuple[list[str], str | None]:
    """Return what may stand where *line* ends, of commands and their options, and the line for Hydra to complete.

    Returns:
        Words, and None for the line if no override can follow: then the shell completes files.
    """
    program, _, rest = line.lstrip().partition(" ")
    words = rest.split()
    last = words[-1] if words and not rest.endswith(" ") else ""
    if words in ([], [last]):
        return [name for name in NAMES if name.startswith(last)], line
    command, given = words[0], words[1:]
    if command not in NAMES:
        return [], line
    if last.startswith("-"):
        options = parser_of(command).format_help().replace(",", " ").replace("[", " ").split()
        return sorted({word.rstrip("]") for word in options if word.startswith(last)}), None
    named = command == "plan" or any(word.endswith((".yaml", ".yml")) for word in given if word != last)
    if command not in KEYS_FOLLOW or not named:
        return [], None
    keys = [word for word in given if "=" in word or word == last]
    return [], " ".join([program, *keys]) + ("" if last else " ")
