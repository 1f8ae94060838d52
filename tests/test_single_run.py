"""A single run goes through one composition and leaves what ``hydra.main`` would leave."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from simrl.config.yaml_text import plain_yaml_text, yaml_text

ROOT = Path(__file__).parent.parent
TINY = ("versions=1", "groups_per_batch=2", "group_size=2", "workload.mean_response_tokens=1000")
BY_HYDRA = """
import sys, hydra
from simrl.cli.main import job
from simrl.config.option_folders import config_folder
hydra.main(config_path=config_folder(), config_name="config", version_base="1.3")(job)()
"""
CASES = (
    (),
    ("framework=roll", "framework.eta=2", "seed=3"),
    ("--config-dir", "mine", "framework=my", "hydra.verbose=true", "hydra.job.name=other"),
    ("hydra.mode=RUN", "hydra/launcher=basic", "+hydra.job.env_set.SIMRL_TEST=1", "++framework.eta=2", "versions=1"),
    ("output_dir=out/${hydra:job.name}",),
)


def run(folder: Path, *command: str) -> dict[str, str]:
    """Run a command in *folder*; return the Hydra files of its run, by name."""
    options = folder / "mine" / "framework"
    options.mkdir(parents=True)
    (options / "my.yaml").write_text("defaults: [areal, _self_]\nname: my\neta: 3\n")
    subprocess.run([sys.executable, *command], cwd=folder, check=True, capture_output=True)
    (files,) = folder.rglob(".hydra")
    return {file.name: file.read_text().replace(str(folder), "FOLDER") for file in files.iterdir()}


@pytest.mark.parametrize("arguments", CASES)
def test_hydras_files_are_those_of_hydra(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Configuration, Hydra's own node and overrides are the same to the letter."""
    ours = run(tmp_path / "ours", "-m", "simrl", *arguments, *TINY)
    hydras = run(tmp_path / "hydras", "-c", BY_HYDRA, *arguments, *TINY)
    assert ours == hydras
    assert set(ours) == {"config.yaml", "hydra.yaml", "overrides.yaml"}


def test_a_result_that_is_there_is_found_without_the_engine(tmp_path: Path) -> None:
    """A second start loads neither numba nor SimPy, and no run loads pandas or what draws."""
    script = (
        "import sys; from simrl.cli.main import main; main(sys.argv[1:]);"
        "print([m for m in ('numba', 'simpy', 'pandas', 'matplotlib', 'joblib') if m in sys.modules])"
    )
    loaded = []
    for _ in range(2):
        command = [sys.executable, "-c", script, *TINY]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        loaded.append(done.stdout.splitlines()[-1])
    assert loaded == ["['numba', 'simpy']", "[]"]


def test_callbacks_are_called(tmp_path: Path) -> None:
    """A user's own callbacks hear of a single run as they do from Hydra."""
    (tmp_path / "mine.py").write_text(
        "from hydra.experimental.callback import Callback\n"
        "class Mine(Callback):\n"
        "    def on_run_start(self, config, **kwargs): open('heard', 'a').write('start ')\n"
        "    def on_job_end(self, config, job_return, **kwargs): open('heard', 'a').write(job_return.status.name)\n"
    )
    command = [sys.executable, "-m", "simrl", *TINY, "+hydra.callbacks.mine._target_=mine.Mine"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "heard").read_text() == "start COMPLETED"


@pytest.mark.parametrize(
    "content",
    [
        {
            "a": 1,
            "b": [1.5, None, True, "x" * 300, "a b " * 60],
            "c": {},
            "d": [],
            "e": {"f": [{"g": "1"}, {"h": "yes"}]},
        },
        {
            " ": " a ",
            "on": "on",
            "n": "1e3",
            "q": "it's",
            "z": 'say "no"',
            "u": "Größe 中",
            "l": "a\nb\n",
            "c": "a: b",
        },
        {
            "#": "# x",
            "%": "%",
            "@": "@",
            "-": "- a",
            "?": "? b",
            "t": "2001-01-01",
            "i": "${a}",
            "big": 1e-300,
            "inf": float("inf"),
        },
    ],
)
def test_yaml_is_written_as_omegaconf_and_pyyaml_write_it(content: dict[str, object]) -> None:
    """The fast writer differs in nothing that a configuration can hold."""
    from yaml import safe_dump

    config = OmegaConf.create(content)
    assert yaml_text(config) == OmegaConf.to_yaml(config)
    assert plain_yaml_text(content) == safe_dump(content, sort_keys=False)
