"""The settings for accelerate that docs/scale.md gives."""

from __future__ import annotations

from pathlib import Path

from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser
from accelerate.utils import DistributedType

SETTINGS = Path(__file__).parents[1] / "docs" / "fsdp2.yaml"


def test_accelerate_reads_the_settings_and_knows_every_one_of_them() -> None:
    config = load_config_from_file(str(SETTINGS))  # refuses keys that it does not know
    assert config.distributed_type == DistributedType.FSDP and config.num_processes == 8
    known = {action.dest for action in launch_command_parser()._actions}
    assert set(config.fsdp_config) <= known
    assert config.fsdp_config["fsdp_version"] == 2 and config.fsdp_config["fsdp_reshard_after_forward"] is True


def test_the_layer_that_is_wrapped_is_one_of_the_model() -> None:
    from transformers.models.qwen3 import modeling_qwen3

    config = load_config_from_file(str(SETTINGS))
    assert hasattr(modeling_qwen3, config.fsdp_config["fsdp_transformer_layer_cls_to_wrap"])
