"""What a checkpoint takes beside text: images, and videos only where its files say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from features_kit import checkpoint

from npu_emulator.dry_run.models import looker

VISION = {"vision_config": {"depth": 2}}


def test_a_blip_2_takes_images_and_no_videos(tmp_path: Path) -> None:
    found = checkpoint(tmp_path / "looker", looker.CONFIG)
    fact = found.modalities()
    assert (fact.value, fact.evidence) == (("image",), "config.json: vision_config")
    assert found.inputs() == ("image", "video")


@pytest.mark.parametrize(
    ("config", "files", "evidence"),
    [
        (VISION | {"video_token_id": 7}, {}, "config.json: vision_config, video_token_id"),
        (VISION, {"video_preprocessor_config.json": {}}, "; video_preprocessor_config.json"),
        (
            VISION,
            {"processor_config.json": {"video_processor": {"fps": 2}}},
            "; processor_config.json: video_processor",
        ),
        (
            {"thinker_config": VISION | {"video_token_index": 0}},
            {},
            "config.json: thinker_config.vision_config, thinker_config.video_token_index",
        ),
    ],
)
def test_videos_where_its_files_say_so(
    config: dict[str, Any], files: dict[str, Any], evidence: str, tmp_path: Path
) -> None:
    for name, value in files.items():
        (tmp_path / name).write_text(json.dumps(value))
    fact = checkpoint(tmp_path, config).modalities()
    assert fact.value == ("image", "video")
    assert fact.evidence.endswith(evidence)


def test_videos_where_the_class_fills_the_token_in(tmp_path: Path) -> None:
    fact = checkpoint(tmp_path, VISION | {"model_type": "glm4v"}).modalities()
    assert (fact.value, "video_token_id (of its class)" in fact.evidence) == (("image", "video"), True)


@pytest.mark.parametrize(
    "config",
    [{"video_token_id": 7}, VISION | {"video_token_id": None}, VISION | {"use_video": False}],
)
def test_no_videos_without_a_tower_or_a_value(config: dict[str, Any], tmp_path: Path) -> None:
    assert "video" not in checkpoint(tmp_path, config).modalities().value
