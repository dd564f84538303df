"""Which models are served and measured; without --config nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("served models")
    group.addoption(
        "--config", action="append", default=[], metavar="YAML", help="an accuracy config; repeatable"
    )
    group.addoption("--model", metavar="DIR", help="the model's folder (default: model_name of the config)")
    group.addoption("--python", default="auto", help="the interpreter with vllm, as of upgrade.py accuracy")
    group.addoption("--lm-eval", metavar="PYTHON", help="the interpreter with lm_eval; own: made for it")
    group.addoption("--tasks-folder", metavar="DIR", help="tasks of your own")
    group.addoption("--label", metavar="LABEL", help="what the run has to count as, for instance 'NPU real'")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "config_file" in metafunc.fixturenames:
        files = [Path(one) for one in metafunc.config.getoption("--config", default=[])]
        metafunc.parametrize("config_file", files, ids=[one.stem for one in files])


@pytest.fixture(autouse=True)
def own_home():
    """In place of the fixture that gives each test a cache of its own: models and environments are real."""
