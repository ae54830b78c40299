"""Export a model of GPT-2's shape for the library transformers, with a tokenizer of characters."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from cli.errors import UserError
from cli.hints import PROJECT, to_paste
from cli.optional import optional_library
from experiments import gpt2
from training.runs.checkpoint import Checkpoint
from training.trained_model import TrainedModel


def write_huggingface(trained: TrainedModel, folder: Path) -> None:
    """Write a `GPT2LMHeadModel` with the same logits, and a tokenizer, to a folder.

    Raises UserError if the model has another shape than GPT-2, or a library is missing.
    """
    if others := differences(trained.checkpoint):
        train = to_paste("train.py", "--config", PROJECT / "configs/shakespeare_gpt2.yaml")
        raise UserError(
            f"{trained.path} does not have GPT-2's shape, which huggingface needs: {', '.join(others)}; use {train}"
        )
    transformers = optional_library("transformers", "--to huggingface")
    tokenizers = optional_library("tokenizers", "--to huggingface")
    config, vocabulary = trained.model.config, trained.vocabulary
    its_model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=len(vocabulary),
            n_positions=config.block_size,
            n_embd=config.n_embd,
            n_layer=config.n_layer,
            n_head=config.layers[0].n_head,
            activation_function="gelu",
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
            **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), config.dropout),
        )
    )
    # Our model may have no biases; those of a new model are zero.
    biases = {name: value for name, value in its_model.state_dict().items() if name.endswith("bias")}
    its_model.load_state_dict(biases | renamed(trained.checkpoint.weights, config.n_layer))
    its_model.save_pretrained(folder)
    characters = tokenizers.Tokenizer(tokenizers.models.WordLevel({c: i for i, c in enumerate(vocabulary.characters)}))
    each_character = tokenizers.Regex(r"[\s\S]")
    characters.pre_tokenizer = tokenizers.pre_tokenizers.Split(each_character, "isolated")
    characters.decoder = tokenizers.decoders.Fuse()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=characters, clean_up_tokenization_spaces=False, model_max_length=config.block_size
    ).save_pretrained(folder)


def differences(checkpoint: Checkpoint) -> list[str]:
    """Return the settings in which a model differs from GPT-2's shape."""
    config = checkpoint.config
    found = [
        f"model.{name}={getattr(config.model, name)} instead of {value}"
        for name, value in gpt2.SHAPE.items()
        if getattr(config.model, name) != value
    ]
    if config.data.level != "character":
        found.append(f"data.level={config.data.level} instead of character")
    shapes = {(layer.n_head, layer.n_kv_head, layer.n_head * layer.head_size) for layer in config.model.layers}
    if shapes != {(H := config.model.layers[0].n_head, H, config.model.n_embd)}:
        found.append("model.n_head, model.n_kv_head or model.head_size instead of equal heads that divide model.n_embd")
    return found


def renamed(weights: Mapping[str, Tensor], n_layer: int) -> dict[str, Tensor]:
    """Return a model's weights by the names and in the layout of `GPT2LMHeadModel`."""
    names, result = gpt2.module_names(n_layer), {}
    for name, value in weights.items():
        module, _, kind = name.rpartition(".")
        is_transposed = kind == "weight" and ".".join(module.split(".")[2:]) in gpt2.LINEAR_MAPS  # its Conv1D
        result[f"{names[module]}.{kind}"] = value.mT if is_transposed else value
    return result
