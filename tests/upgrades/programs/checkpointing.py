"""Saves and loads the weights of a model, under a number."""

from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter, load, save
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict


def save_weights(model, number):
    save(
        {"model": get_model_state_dict(model)},
        storage_writer=FileSystemWriter(f"runs/round{number}"),
    )


def load_weights(model, number):
    state = {"model": get_model_state_dict(model)}
    load(state, storage_reader=FileSystemReader(f"runs/round{number}"))
    set_model_state_dict(model, state["model"])
