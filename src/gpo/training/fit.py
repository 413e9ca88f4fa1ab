"""From a configuration to a trained model in a run folder."""

import logging
import os
import warnings
from dataclasses import replace
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import (
    Callback,
    EarlyStopping,
    EMAWeightAveraging,
    ModelCheckpoint,
)
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from torch.utils.data import DataLoader

from gpo.baselines.base import Problem
from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.forcings import day_angle
from gpo.data.splits import Split
from gpo.forecast.examples import Batches, EpochShuffle, collate, make_examples, reading_ahead
from gpo.forecast.forecaster import Forecaster, Task
from gpo.forecast.statistics import SiteMeans, training_statistics
from gpo.parallel.partition import SitePartition
from gpo.parallel.processes import (
    check_restarts,
    global_rank,
    num_processes,
    tells_of_lost_processes,
)
from gpo.parallel.shard import SINGLE_PROCESS
from gpo.runs import Run, split_of
from gpo.training.budget import Budget
from gpo.training.config import RunConfig
from gpo.training.models import build_model
from gpo.training.module import SCORE, TrainingModule
from gpo.training.progress import ProgressLine


def train(
    run: Run,
    data: Trajectories | StaticMaps,
    config: RunConfig,
    *,
    devices: int = 1,
    space_shards: int = 1,
    is_quiet: bool = False,
    logs_tensorboard: bool = False,
) -> Forecaster:
    """Trains, or goes on training, and leaves the best model in the run folder.

    Args:
        run: The folder, claimed for this configuration.
        data: What to learn from.
        config: How.
        devices: Processes that train together; `torchrun` has the last word.
        space_shards: How many of them share the sites of a sample; the others share batches.
        is_quiet: Without a progress bar, for logs.
        logs_tensorboard: Whether TensorBoard gets the losses too.
    """
    check_restarts()
    split = split_of(data, config)
    lightning.seed_everything(config.seed, verbose=False)
    forecaster = new_forecaster(data, split, config, is_quiet=is_quiet or global_rank() > 0)
    world = num_processes(devices, space_shards)
    if space_shards > 1:
        # Refuses models that cannot, before anything starts.
        forecaster.share_sites(SINGLE_PROCESS)
    rank, groups = global_rank() // space_shards, world // space_shards
    held = SitePartition.of(data.geometry(), global_rank() % space_shards, space_shards)
    portion = {"reconstructs": config.stage == "field", "held": held}
    training = make_examples(data, split.training, num_steps=config.rollout, **portion)
    validation = make_examples(data, split.validation, **portion)
    order = EpochShuffle(len(training), config.seed)
    batches = Batches(order, config.batch_size, rank=rank, world=groups)
    ahead = reading_ahead(training)
    loader = DataLoader(training, batch_sampler=batches, collate_fn=collate, **ahead)
    mine = torch.utils.data.Subset(validation, range(rank, len(validation), groups))
    judge = DataLoader(mine, max(1, config.batch_size // groups), collate_fn=collate, **ahead)
    budget = Budget(config, num_steps=config.epochs * -(-len(loader) // config.accumulate))
    module = TrainingModule(forecaster, config, budget, held)
    best = ModelCheckpoint(run.checkpoints, "best", monitor=SCORE, save_last=True)
    trainer = _trainer(run, config, best, world, is_quiet, logs_tensorboard)
    with warnings.catch_warnings():
        # Advice about worker processes: data in memory needs none, other data one.
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        # Lightning walks batches in a way that torch will drop.
        warnings.filterwarnings("ignore", message=".*treespec.*", category=FutureWarning)
        # What is logged was made one over all processes already.
        warnings.filterwarnings("ignore", message=".*sync_dist=True.*")
        # That a run goes on in its own folder is what we want.
        warnings.filterwarnings("ignore", message=".*Checkpoint directory.*exists.*")
        try:
            with tells_of_lost_processes(world, lambda: newest_checkpoint(run)):
                trainer.fit(
                    module, loader, judge, ckpt_path=newest_checkpoint(run), weights_only=True
                )
        except SystemExit as stopped:
            # Lightning turns Ctrl-C into an exit of its own.
            raise KeyboardInterrupt from stopped
    if space_shards > 1:
        forecaster.share_sites(SINGLE_PROCESS)
    chosen = best.best_model_path or run.checkpoints / "last.ckpt"
    stored = torch.load(chosen, weights_only=True, map_location="cpu")
    module.load_state_dict(stored["state_dict"])
    if trainer.is_global_zero:
        forecaster.save(run.model_folder)
    return forecaster


def newest_checkpoint(run: Run) -> str | None:
    """Returns the newest checkpoint that can be read; a damaged one gives way to the one before."""
    for name in ("last.ckpt", "best.ckpt"):
        path = run.checkpoints / name
        if not path.exists():
            continue
        try:
            torch.load(path, weights_only=True, map_location="cpu")
        except Exception as error:
            logging.getLogger(__name__).warning("%s is damaged and left out: %s", path, error)
            continue
        return str(path)
    return None


def new_forecaster(
    data: Trajectories | StaticMaps, split: Split[Any], config: RunConfig, *, is_quiet: bool = True
) -> Forecaster:
    """Returns an untrained model with the statistics of the training split."""
    means = None
    if isinstance(data, StaticMaps) and config.predict == "increment":
        means = SiteMeans.of(data, split.training)
    task, geometry = make_task(data, split, config, means, is_quiet=is_quiet), data.geometry()
    problem = Problem(
        in_channels=task.history * len(task.inputs),
        out_channels=len(task.outputs),
        domain=geometry.domain,
        grid_shape=geometry.grid_shape,
        is_fitted=bool(geometry.grid_shape) and not geometry.axes,
    )
    return Forecaster(build_model(config, problem), task, means)


def make_task(
    data: Trajectories | StaticMaps,
    split: Split[Any],
    config: RunConfig,
    means: SiteMeans | None = None,
    *,
    is_quiet: bool = True,
) -> Task:
    """Returns what is predicted from what, with statistics of the training split."""
    is_map = isinstance(data, StaticMaps)
    if is_map and config.relative_to == "change":
        raise ValueError(
            f"`relative_to` must be state, got change: {data.source} holds static maps, in which "
            "nothing changes."
        )
    inputs, outputs, changes = training_statistics(data, split.training, means, is_quiet=is_quiet)
    given, wanted = (data.inputs, data.outputs) if is_map else (data.variables, data.variables)
    known, told = (), {}
    if isinstance(data, Trajectories) and data.forcings:
        known = data.forcings
        told = {"clock": data.time_features, "turn": day_angle(config.lead * data.time_step)}
    task = Task(
        inputs=tuple(variable.name for variable in (*known, *given)),
        outputs=tuple(variable.name for variable in wanted),
        units=tuple(variable.units for variable in wanted),
        history=1 if is_map else config.history,
        lead=0 if is_map else config.lead,
        predict="state" if is_map else config.predict,
        # The hand of a clock has length one and is left as it is.
        input_mean=(*(0.0 for _ in known), *inputs.mean.tolist()),
        input_std=(*(1.0 for _ in known), *inputs.std.tolist()),
        output_mean=tuple(outputs.mean.tolist()),
        output_std=tuple(outputs.std.tolist()),
        increment_std=tuple(changes.tolist()),
        is_per_site=means is not None,
        **told,
    )
    if config.stage == "field":
        return replace(task, lead=0, predict="state")
    return task


def _trainer(
    run: Run,
    config: RunConfig,
    best: ModelCheckpoint,
    world: int,
    is_quiet: bool,
    logs_tensorboard: bool,
) -> lightning.Trainer:
    callbacks: list[Callback] = [best, EarlyStopping(SCORE, patience=config.patience)]
    if config.ema:
        callbacks.append(EMAWeightAveraging(decay=config.ema))
    if not is_quiet:
        callbacks.append(ProgressLine())
    loggers: list[Logger] = [CSVLogger(run.folder, name="log")]
    if logs_tensorboard:
        loggers.append(TensorBoardLogger(run.folder, name="tensorboard"))
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    return lightning.Trainer(
        max_epochs=config.epochs,
        devices=local if world > 1 else "auto",
        num_nodes=world // local,
        strategy="ddp" if world > 1 else "auto",
        use_distributed_sampler=False,
        callbacks=callbacks,
        logger=loggers,
        precision=config.precision,
        accumulate_grad_batches=config.accumulate,
        gradient_clip_val=config.clip,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
    )
