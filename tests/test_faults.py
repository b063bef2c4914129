"""What maintainers of real repositories found wrong in the output once, and the tests that hold it right since.

One line a fault, by letter and number: A is silently wrong, B breaks at run time, D asks a person what the tool can
answer; L are files by rank, F is what has a meaning of FSDP1's flat parameters, K what is kept beside it. Each test
named here fails without the mend, or proves by running what another one only reads.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

FAULTS = {
    "A1 what runs before it stands below it, in a loop": (
        "rules/test_fm209_parameters_after_forward.py::test_evaluation_below_in_the_same_loop",
        "rules/test_fm209_parameters_after_forward.py::test_average_in_a_function_of_its_own",
    ),
    "A2 rank 0 of the world in the place of the first of the model's own group": (
        "rules/test_fm304_model_state.py::test_model_with_a_group_of_its_own",
        "rules/test_fm303_optimizer_state.py::test_state_that_each_rank_of_a_group_of_its_own_has",
        "rules/test_fm303_optimizer_state.py::test_state_that_the_first_rank_would_give_to_every_group",
        "rules/test_fm101_placement.py::test_states_are_synchronised_among_the_ranks_that_shard_together",
        "support/run_functions.py::first_rank_is_that_of_the_models_group",
        "support/run_functions.py::each_group_loads_its_own",
        "support/run_functions.py::each_group_goes_on_with_its_own_optimizer",
    ),
    "A3 a model that is stored from outside of its class": (
        "rules/test_models_followed.py::test_any_store_counts",
        "rules/test_models_followed.py::test_program_of_a_distillation",
    ),
    "A4 `not isinstance(m, FSDP)` in what activation checkpointing is applied to": (
        "rules/test_fm105_class_check.py::test_wrapper_that_was_left_out_is_no_object_of_its_own",
    ),
    "A5 a DTensor that is written by index": (
        "rules/test_hazards_of_parameters.py::test_found",
        "rules/test_hazards_of_parameters.py::test_an_index_of_what_a_setter_was_given_wrapped",
    ),
    "A6 attributes that parameters had before the wrap": ("rules/test_hazards.py::test_trap_is_found_once",),
    "A7 autocast around one forward keeps a copy of the whole model": (
        "rules/test_fm212_autocast_cache.py::test_one_forward_would_keep_a_copy_of_the_whole_model",
        "rules/test_fm212_autocast_cache.py::test_of_frozen_parameters_nothing_is_kept",
    ),
    "A8 the way of DDP, changed": (
        "rules/test_fm304_model_state.py::test_ddp_model_keeps_the_prefix_of_its_keys",
        "rules/test_fm304_model_state.py::test_the_way_on_which_a_flag_says_that_there_is_no_fsdp",
        "rules/test_models_followed.py::test_trainers_of_one_base_that_pass_it_models_of_several_kinds",
        "edit/test_survives.py::test_what_is_not_fsdps_survives",
    ),
    "A9 clipping in turns that do not synchronise": (
        "rules/test_hazards.py::test_clipping_in_turns_that_do_not_synchronise",
    ),
    "A10 an enum that looks like torch's and compares unequal": (
        "rules/test_imports.py::test_settings_that_are_still_read_stay_torchs_own",
        "test_cli.py::test_settings_that_stay_pass_the_gate",
    ),
    "A11 names with FSDP1's prefix in strings": (
        "rules/test_fm216_prefixed_names.py::test_a_name_in_a_variable_is_the_models",
    ),
    "A12 tests for ShardedTensor, behind another fault": (
        "rules/test_one_cause.py::test_tests_of_sharded_tensors_in_a_file_are_one_finding",
    ),
    "B1 imports, however a file is started": (
        "edit/test_ways.py::test_program_starts",
        "edit/test_ways.py::test_module_of_a_package_that_a_script_beside_it_imports_too",
        "test_support_file.py::test_import_is_written_as_the_program_imports",
    ),
    "B2 names that only a string uses": (
        "rules/test_imports.py::test_name_in_a_string_that_is_evaluated_keeps_its_import",
        "rules/test_imports.py::test_class_in_a_string_that_is_evaluated_is_reported",
    ),
    "B3 a raise on a way that FSDP cannot reach": (
        "rules/test_raises.py::test_a_model_that_is_not_sharded_goes_its_way",
        "rules/test_raises.py::test_no_raise_where_no_fsdp_model_comes",
        "rules/test_raises.py::test_model_that_is_looked_up_under_no_grad_needs_no_synchronising",
    ),
    "B4 unwrapping a model that has a `.module` of its own": (
        "rules/test_fm104_module_attribute.py::test_model_with_a_module_of_its_own_is_not_asked_for_one",
    ),
    "B5 a wrap around a wrap": (
        "rules/test_fm101_places.py::test_wrap_around_wrap",
        "rules/test_fm101_places.py::test_model_that_is_wrapped_again",
    ),
    "B6 the name of a class, after sharding": (
        "rules/test_fm210_class_by_name.py::test_name_becomes_a_class_test",
        "rules/test_hazards.py::test_module_told_by_its_class_name_in_a_helper",
    ),
    "B7 a root that is frozen, or empty, or without a forward": (
        "rules/test_fm101_places.py::test_container_as_root_goes_through_the_support_module",
        "support/run_functions.py::container_as_root_trains_through_its_units",
        "parity/test_around.py::test_trains_as_before",
    ),
    "B8 a forward on one rank inside of summon_full_params": (
        "rules/test_fm203_summon.py::test_what_is_not_seen_through_stays_in_a_context",
        "rules/test_hazards.py::test_trap_is_found_once",
    ),
    "B9 a collective under a test for the rank": (
        "rules/test_fm304_model_state.py::test_state_that_one_rank_reads_alone_raises",
        "rules/test_fm202_clip_grad_norm.py::test_norm_of_one_rank_alone_waits_for_the_others",
    ),
    "B10 full tensors that are loaded into a sharded model, unnamed": (
        "rules/test_fm304_model_state.py::test_loading",
        "rules/test_models_followed.py::test_any_store_counts",
    ),
    "B11 DTensors where plain tensors were": (
        "rules/test_hazards_of_parameters.py::test_gradients_in_an_optimizer_of_the_programs_own",
        "rules/test_fm215_broadcast_shards.py::test_this_ranks_piece_is_broadcast",
        "rules/test_hazards_of_parameters.py::test_found",
    ),
    "B12 an optimizer's state without its optimizer, or by a method": (
        "rules/test_fm303_optimizer_state.py::test_state_that_only_rank_0_has",
        "rules/test_fm303_optimizer_state.py::test_static_method_called_on_a_model",
    ),
    "B13 a load before the device is set; a process without a group": (
        "rules/test_fm304_model_state.py::test_load_above_the_wrap_stays",
        "rules/test_fm304_model_state.py::test_load_in_a_process_without_a_group",
    ),
    "B14 attributes of what the tool has annotated anew": (
        "rules/test_models_followed.py::test_annotation_of_a_model",
        "rules/test_models_followed.py::test_annotation_and_being_handed_to_fsdp",
    ),
    "D1 models that are not followed": (
        "rules/test_models_followed.py::test_two_from_a_method",
        "rules/test_models_followed.py::test_units_are_models",
        "oracle/test_oracle.py::test_each_way_of_handing_a_model_on",
        "oracle/test_oracle.py::test_generated_programs",
    ),
    "D2 what is no FSDP model": (
        "rules/test_models_followed.py::test_what_is_no_fsdp_model",
        "rules/test_models_followed.py::test_function_for_fsdp2_models_of_its_own",
        "rules/test_models_followed.py::test_what_another_branch_of_a_kind_chosen_once_holds_is_left_alone",
    ),
    "D3 what only FSDP1's wrapper has": (
        "rules/test_fm104_module_attribute.py::test_what_only_fsdp1_has_of_a_model_that_is_not_followed",
        "rules/test_fm104_module_attribute.py::test_fsdp_model",
    ),
    "D4 differences that the emitted code handles": (
        "rules/test_fm202_clip_grad_norm.py::test_clipping_by_a_local_norm_is_reported",
        "rules/test_fm202_clip_grad_norm.py::test_ignored_modules_that_are_frozen_in_sight",
        "rules/test_fm201_no_sync.py::test_a_step_on_every_way_to_the_next_zero_grad",
    ),
    "D5 spellings of the scaler": (
        "rules/test_fm204_grad_scaler.py::test_call",
        "rules/test_fm204_grad_scaler.py::test_a_choice_of_the_same_scaler_is_none",
        "rules/test_fm204_grad_scaler.py::test_a_name_that_each_branch_imports_from_another_library",
    ),
    "D6 groups, the number of ranks, norms by hand": (
        "rules/test_fm303_optimizer_state.py::test_group_of_the_model",
        "rules/test_fm104_module_attribute.py::test_world_size_of_a_model_over_all_ranks",
        "rules/test_fm214_hand_written_norm.py::test_squares_are_those_of_this_rank",
    ),
    "D7 LOCAL_STATE_DICT around the optimizer alone": (
        "rules/test_fm301_state_dict.py::test_local_state_dict_is_what_each_rank_has",
        "rules/test_fm307_parameter_ids.py::test_a_file_for_each_rank_is_for_review",
    ),
    "D8 copies of torch's files: one finding a cause": (
        "rules/test_skipped.py::test_copy_of_torch_is_left_and_the_rest_is_rewritten",
        "rules/test_skipped.py::test_call_of_a_copied_function_is_named",
    ),
    "D9 tests, registries and tools that never see the model": (
        "rules/test_one_cause.py::test_a_program_beside_it_that_wraps_nothing",
        "rules/test_one_cause.py::test_a_test_that_runs_no_fsdp",
        "rules/test_one_cause.py::test_needs_no_person",
        "fsdp2_lint/test_fsdp2_lint.py::test_right_code_is_clean",
    ),
    "L1 files by rank that FSDP1 saved, on 2 and 4 ranks, with and without use_orig_params": (
        "checkpoints/test_local.py::test_goes_on_from_what_each_rank_of_fsdp1_saved",
        "support/run_functions.py::local_files_of_two_ranks_go_on",
        "support/run_functions.py::local_files_of_four_ranks_go_on",
        "support/run_functions.py::optimizer_files_of_replicas_go_on",
        "rules/test_fm301_state_dict.py::test_local_state_dict_that_fsdp1_saved_loads_where_it_is_asked_for",
        "rules/test_fm301_state_dict.py::test_local_optimizer_of_a_helper",
    ),
    "L2 files by rank without their readers are an error": (
        "support/run_functions.py::files_of_a_rank_are_those_of_fsdp2",
        "support/run_functions.py::optimizer_files_by_parameter_ids_are_refused",
    ),
    "F1 handles, flat parameters, their norms": (
        "rules/test_fm446_averaged_handles.py::test_an_average_is_one_of_parameters",
        "rules/test_one_cause.py::test_a_function_on_handles_is_one_finding",
        "rules/test_one_cause.py::test_the_norms_of_a_function_on_handles_go_with_them",
        "rules/test_fm440_freed_parameters.py::test_freeing_a_flat_parameter",
        "rules/test_leftovers.py::test_private_helpers",
    ),
    "F2 groups of nodes by a private helper": ("rules/test_fm115_node_groups.py::test_two_groups",),
    "F3 shards that are moved to the CPU and back": ("rules/test_fm443_moved_shards.py::test_the_model_is_moved",),
    "K1 a subclass of FSDP": (
        "rules/test_skipped.py::test_subclass_and_what_serves_it_are_left",
        "rules/test_leftovers.py::test_subclass",
    ),
    "K2 a changed FSDP, and what it takes beside FSDP1's arguments": (
        "rules/test_skipped.py::test_call_of_a_copied_class_is_named",
        "rules/test_fm101_places.py::test_an_argument_that_is_none_of_fsdp1s_leaves_the_call",
        "rules/test_fm304_model_state.py::test_state_dict_in_a_context_of_another_library",
    ),
    "K3 FSDP2 beside FSDP1": (
        "rules/test_fm110_side_by_side.py::test_switch_is_recognised",
        "rules/test_fm110_side_by_side.py::test_what_serves_the_kept_path_is_left_with_it",
        "rules/test_fm105_class_check.py::test_a_way_of_fsdp1_beside_one_of_fsdp2_goes",
    ),
}


@cache
def _defined(path: str) -> frozenset[str]:
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_tests_that_are_there(fault: str) -> None:
    for test in FAULTS[fault]:
        path, _, name = test.partition("::")
        assert name in _defined(path), test
