"""Constructor calls as repositories have them, chosen before the tool was run on any of them.

Each folder has a program of our own in the shape of one such call (`fsdp1.py`) and what a person who knows FSDP2 writes
for it (`expert.py`), written by hand first. No line is the repository's. Five more are of the kinds that once sent
programs through `shard_model`: what only run time knows of each is its value here.
"""

SHAPE_OF = {
    "strategy_dict_method_units": "Alpha-VLLM/Lumina-mGPT xllmx/solvers/finetune/finetune.py",
    "strategy_dict_offload_flag": "wenet-e2e/wenet wenet/utils/train_utils.py",
    "if_elif_raise": "kyegomez/Andromeda train.py",
    "hybrid_by_flag": "FoundationVision/Infinity train.py",
    "policy_argument": "genmoai/mochi src/genmo/mochi_preview/pipelines.py",
    "lambda_over_blocks": "Wan-Video/Wan2.1 wan/distributed/fsdp.py",
    "shared_kwargs_two_models": "eric-mitchell/direct-preference-optimization trainers.py",
    "offload_by_value": "fingertap/llama_fsdp tour_fsdp/main.py",
    "meta_on_other_ranks": "X-LANCE/SLAM-LLM src/slam_llm/pipeline/finetune.py",
    "tuple_of_policies": "foundation-model-stack/fms-fsdp fms_fsdp/utils/train_utils.py",
    "ddp_or_fsdp_classes": "facebookresearch/multimodal examples/flava/native/train.py",
    "size_policy_sync_flag": "ecmwf/WeatherGenerator src/weathergen/train/trainer.py",
    "two_parts_two_groups": "ORNL/HydraGNN hydragnn/models/MultiTaskModelMP.py",
    "class_attribute_defaults": "Stability-AI/StableCascade train/train_c.py",
    "strategy_class": "TRI-ML/prismatic-vlms prismatic/training/strategies/fsdp.py",
    "strategy_function_precision_if": "PrimeIntellect-ai/OpenDiloco open_diloco/train_fsdp.py",
    "config_dataclass": "pytorch/workshops FSDP_Workshop/main_benchmark.py",
    "kwargs_from_function": "hao-ai-lab/FastVideo fastvideo/utils/fsdp_util.py",
    "offload_if_else": "aws-samples/awsome-distributed-training 3.test_cases/pytorch/FSDP/src/train.py",
    "lora_or_policy": "AnswerDotAI/fsdp_qlora train.py",
}

ONCE_THROUGH_SHARD_MODEL = {
    "strategy_and_dtypes_by_flag": "strategy and dtypes by dict, units from the model's own method, sync_module_states",
    "size_policy_no_shard": "size-based policy, strategy by name with NO_SHARD",
    "dict_updated_under_flag": "dict updated under a flag, then splat; `ShardingStrategy[name]`; policy or None",
    "batch_norm_in_bf16": "BatchNorm under mixed precision",
    "meta_but_rank_0": "rank 0 has the weights, the others are on meta; param_init_fn, sync_module_states",
}
