"""Find the state from which a run resumes."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from training.processes.distributed import World
from training.runs.checkpoint import Checkpoint, CheckpointError, Part, from_bytes, to_bytes
from training.runs.metrics import read_newest_record
from training.runs.run_folder import RunFolder
from training.settings.config_file import build_config, load_run_config, parse_settings, upgraded


def newest_checkpoint(run: RunFolder) -> Checkpoint | None:
    """Return the checkpoint to resume from, or None if the run ended before its first one and starts again.

    Raises CheckpointError if the run has saved a checkpoint that is now damaged or missing.
    """
    if not run.has_checkpoints() and not run.saved_note.exists():
        settings = load_run_config(run.config).train
        first_save = min(settings.checkpoint_every_steps, settings.eval_every_steps, settings.max_steps)
        record = read_newest_record(run.metrics)
        if record.get("step", 0) <= first_save and not record.get("finished"):
            return None
    checkpoint, warnings = run.load_newest()
    for warning in warnings:
        print(f"train.py: warning: {warning}; resuming from step {checkpoint.step:,}", file=sys.stderr)
    return checkpoint


def load_state(run: RunFolder, world: World, overrides: Sequence[str]) -> tuple[dict[str, Any], Checkpoint | None]:
    """Return the run's settings and the checkpoint to resume from, or None as `newest_checkpoint` does.

    The main process reads them and sends them to the others, which may have no access to the run's folder. If the
    model will be sharded, they receive the shapes of the tensors only; of a divided checkpoint, each reads its part.
    overrides: of the settings.
    """
    while True:
        checkpoint, content, config_yaml = None, b"", b""
        with world.together():
            if world.is_main:
                checkpoint, config_yaml = newest_checkpoint(run), run.config.read_bytes()
                if checkpoint:
                    settings = build_config(checkpoint.settings, overrides).train
                    if checkpoint.part:
                        # Without torchrun, this process starts as many before it restores the state.
                        size = settings.processes if world.store is None else world.size
                        check_parts(run, checkpoint.part, size if settings.parallel == "fsdp" else 1)
                    if world.size > 1:
                        is_sharded = settings.parallel == "fsdp"
                        content = bytes(to_bytes(without_values(checkpoint) if is_sharded else checkpoint))
        content, config_yaml = world.share(content), world.share(config_yaml)
        if content and not world.is_main:
            checkpoint = from_bytes(content, run.latest)
        if not checkpoint:
            return upgraded(parse_settings(config_yaml.decode(), run.config)), None
        if checkpoint.part and world.size > 1:
            checkpoint = own_part(run, checkpoint.part, world)
        if checkpoint:
            return dict(checkpoint.settings), checkpoint


def check_parts(run: RunFolder, part: Part, n_shards: int) -> None:
    """Raise CheckpointError if the newest checkpoint is divided among another number of processes."""
    if part.size != n_shards:
        raise CheckpointError(
            f"{run.path}: its checkpoint is divided among {part.size} processes; resume it with {part.size} processes "
            f"and train.parallel=fsdp, or join the parts first: python -m training.runs.join {run.path}"
        )


def own_part(run: RunFolder, part: Part, world: World) -> Checkpoint | None:
    """Return this process's part of the newest checkpoint.

    None if a part is damaged; then the checkpoint before becomes the newest one. Raises OSError, or OtherProcessError,
    if a part cannot be read.
    """
    own = None
    with world.together():
        try:
            own = run.load_part(part._replace(rank=world.rank))
        except CheckpointError as error:
            print(f"train.py: warning: {error}; trying the one before", file=sys.stderr)
    if not world.agree(own is None):
        return own
    with world.together():
        if world.is_main:
            run.set_aside(part.save)
    return None


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
