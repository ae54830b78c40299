"""Find the state from which a run resumes."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from training.checkpoint import Checkpoint, CheckpointError, from_bytes, load_part, to_bytes
from training.config_file import build_config, load_run_config, parse_settings, upgraded
from training.distributed import World
from training.metrics import read_newest_record
from training.run_folder import RunFolder


def newest_checkpoint(run: RunFolder, part: Checkpoint | None = None) -> Checkpoint | None:
    """Return the checkpoint to resume from, or None if the run ended before its first one and starts again.

    part: this process's part of a sharded checkpoint. Raises CheckpointError if the run has saved a checkpoint that is
    now damaged or missing, or the newest one is in parts that these processes cannot use.
    """
    if not run.has_checkpoints() and not run.saved_note.exists():
        settings = load_run_config(run.config).train
        first_save = min(settings.checkpoint_every_steps, settings.eval_every_steps, settings.max_steps)
        record = read_newest_record(run.metrics)
        if record.get("step", 0) <= first_save and not record.get("finished"):
            return None
    whole, n_parts = None, run.n_parts()
    if run.has_whole_checkpoints() or not n_parts:
        whole, warnings = run.load_newest()
        for warning in warnings:
            print(f"train.py: warning: {warning}; resuming from step {whole.step:,}", file=sys.stderr)
    if part and (whole is None or part.step >= whole.step):
        return part
    if n_parts and (step := max(run.part(0, n_parts).part_files(), default=0)) > (whole.step if whole else -1):
        raise CheckpointError(
            f"{run.path}: the checkpoint of step {step:,} is in {n_parts} parts; resume with {n_parts} processes and "
            f"train.parallel=fsdp, or join the parts with python -m training.join {run.path}"
        )
    return whole


def newest_part(run: RunFolder, world: World, overrides: Sequence[str]) -> Checkpoint | None:
    """Return this process's part of the newest checkpoint of which every process has its part.

    That file becomes the latest one, so that no later save replaces it first. None without such a checkpoint, or
    if the model will not be sharded. All processes must call it.
    """
    mine = run.part(world.rank, world.size)
    files = mine.part_files()
    common = world.common(files)
    if not common:
        return None
    with world.together():
        path = files[max(common)]
        part = load_part(path)
        if build_config(part.settings, overrides).train.parallel != "fsdp":
            return None
        if path != mine.latest:
            path.replace(mine.latest)
        return part


def load_state(run: RunFolder, world: World, overrides: Sequence[str]) -> tuple[dict[str, Any], Checkpoint | None]:
    """Return the run's settings and the checkpoint to resume from, or None as `newest_checkpoint` does.

    The main process reads them and sends them to the others, which may have no access to the run's folder. If the
    model will be sharded, they receive the shapes of the tensors only, or read their parts of a sharded checkpoint.
    overrides: of the settings.
    """
    part = newest_part(run, world, overrides) if world.size > 1 else None
    checkpoint, content, config_yaml = None, b"", b""
    with world.together():
        if world.is_main:
            checkpoint, config_yaml = newest_checkpoint(run, part), run.config.read_bytes()
            if checkpoint and checkpoint is not part and world.size > 1:
                is_sharded = build_config(checkpoint.settings, overrides).train.parallel == "fsdp"
                content = to_bytes(without_values(checkpoint) if is_sharded else checkpoint)
    if part and world.agree(checkpoint is part):
        return dict(part.settings), part
    content, config_yaml = world.share(content), world.share(config_yaml)
    if content and not world.is_main:
        checkpoint = from_bytes(content, run.latest)
    if checkpoint:
        return dict(checkpoint.settings), checkpoint
    return upgraded(parse_settings(config_yaml.decode(), run.config)), None


def without_values(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with tensors that have a shape and no values."""

    def emptied(x: Any) -> Any:
        if isinstance(x, Mapping):
            return {name: emptied(value) for name, value in x.items()}
        return x.to("meta") if isinstance(x, Tensor) and x.ndim else x

    return dataclasses.replace(
        checkpoint,
        model=emptied(checkpoint.model),
        trained=emptied(checkpoint.trained),
        optimizers=[emptied(state) for state in checkpoint.optimizers],
    )
