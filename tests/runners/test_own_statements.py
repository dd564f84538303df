"""The runners are small, and no statement sequence in them is vLLM's or vllm-ascend's."""

import ast
from pathlib import Path

import pytest

import omni_runners
from npu_upgrade.pycode.statements import Statement as Statement  # noqa: F401
