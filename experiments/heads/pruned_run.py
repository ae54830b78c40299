"""Write a run without some of its heads."""

import dataclasses

import torch

from experiments.heads.model_access import HeadIndex, head_name
from experiments.heads.opened_model import OpenedModel
from experiments.heads.prune import n_parameters, prune
from training.evaluation import evaluate
from training.runs.metrics import append_record
from training.runs.run_folder import RunFolder
from training.runtime import processor_name
from training.settings.config_file import to_yaml


def write_pruned(opened: OpenedModel, heads: list[HeadIndex]) -> str:
    """Create a run folder with the model without these heads; return a summary to print."""
    checkpoint, runtime = opened.checkpoint, opened.runtime
    pruned = prune(checkpoint, heads)
    config, step = pruned.config(), pruned.step
    block_size = config.model.block_size
    n_characters = pruned.config().train.eval_characters
    model = pruned.build_model().to(runtime.device)
    result = evaluate(model, opened.val_ids, block_size, runtime, n_characters=n_characters)
    new = RunFolder.create(f"{opened.name}-pruned-{len(heads)}", to_yaml(config))
    names = ", ".join(head_name(head) for head in sorted(heads))
    common = {"step": step, "elapsed_s": pruned.progress["elapsed_s"], "corpus": pruned.corpus["name"]}
    append_record(new.metrics, common | {"changes": [f"heads removed: {names}"]})
    append_record(new.metrics, common | result.record())
    progress = {**pruned.progress, "best_loss": result.loss, "log_sizes": new.sizes()}
    end = {"finished": True, "best_val_loss": result.loss, "n_parameters": n_parameters(pruned)}
    machine = f"{runtime}, {processor_name()}, PyTorch {torch.__version__}"
    append_record(new.metrics, common | end | {"peak_memory_bytes": 0, "machine": machine})
    new.save(dataclasses.replace(pruned, progress=progress), is_best=True)
    is_whole = result.n_characters == result.n_available
    extent = "all" if is_whole else f"{result.n_characters:,} evenly spread ones of the"
    return (
        f"Without {names}: {n_parameters(pruned):,} parameters, {n_parameters(checkpoint):,} before; validation loss "
        f"{result.loss:.4f} over {extent} {result.n_available:,} characters of the validation split. To sample from it "
        "or train it further:\n"
        f"  python sample.py --checkpoint {new.path}\n"
        f"  python train.py --resume {new.path} train.max_steps={step + max(100, step // 5)}"
    )
