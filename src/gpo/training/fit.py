"""Trains the model of a configuration in a run folder."""

import logging
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import process_time

import lightning
import torch
from lightning.pytorch.callbacks import Callback, WeightAveraging
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from torch import Tensor
from torch.utils.data import DataLoader

from gpo.data.dataset import FieldData
from gpo.forecast.blend_fit import fit_blend
from gpo.forecast.examples import (
    Batches,
    EpochShuffle,
    Example,
    TimeSliceExamples,
    collate,
    prefetch_settings,
    with_values,
)
from gpo.forecast.forecaster import Forecaster
from gpo.parallel.partition import SitePartition
from gpo.parallel.processes import (
    check_restarts,
    global_rank,
    num_processes,
    reports_lost_processes,
)
from gpo.parallel.shard import SINGLE_PROCESS
from gpo.training.budget import Budget
from gpo.training.checkpoints import KEY, RunCheckpoints, best_checkpoint, newest_checkpoint
from gpo.training.config import RunConfig
from gpo.training.initial import FIELD, freeze_field, initialise_from
from gpo.training.module import TrainingModule
from gpo.training.muon import make_optimizer
from gpo.training.progress import ProgressLine
from gpo.training.rates import FRACTION, MIN_BUDGET, find_rate
from gpo.training.run_folder import Run, TrainingRecord
from gpo.training.setup import new_forecaster, split_of


def train(
    data: FieldData,
    config: RunConfig,
    out: str | Path,
    *,
    devices: int = 1,
    space_shards: int = 1,
    is_quiet: bool = False,
    logs_tensorboard: bool = False,
    fits_blend: bool = True,
) -> Forecaster:
    """Trains a model, or resumes training, and returns the best one, also saved in the run folder.

    Args:
        data: The data set, as `open_data` returns it.
        config: The configuration of model and training.
        out: The run folder. An existing one is resumed if its configuration is the same, except
            for a smaller budget; a finished one is loaded.
        devices: Number of processes or GPUs; `torchrun` overrides it.
        space_shards: Number of processes that share the points of a sample; the others share
            batches.
        is_quiet: Whether to hide the progress bar.
        logs_tensorboard: Whether to log to TensorBoard as well.
        fits_blend: Whether to weigh the model and references on validation data at the end.
    """
    run = Run(Path(out))
    config = run.with_optimizer(config)
    check_restarts()
    if global_rank() == 0:
        run.check(config)
    if run.is_finished(config):
        return Forecaster.load(run.model_folder)
    if global_rank() > 0:
        return _fit(
            data, config, run, devices, space_shards, is_quiet, logs_tensorboard, fits_blend
        )
    is_new = not run.folder.exists()
    try:
        with run.lock():
            return _fit(
                data, config, run, devices, space_shards, is_quiet, logs_tensorboard, fits_blend
            )
    except Exception:
        # A failure before the first checkpoint must not block a corrected command.
        if is_new and not run.has_progress():
            shutil.rmtree(run.folder, ignore_errors=True)
        raise


def _fit(
    data: FieldData,
    config: RunConfig,
    run: Run,
    devices: int,
    space_shards: int,
    is_quiet: bool,
    logs_tensorboard: bool,
    fits_blend: bool,
) -> Forecaster:
    """Trains in a locked run folder."""
    split = split_of(data, config)
    parts = {
        name: with_values(data, getattr(split, name), name) for name in ("training", "validation")
    }
    split = replace(split, **{name: samples for name, (samples, _) in parts.items()})
    lightning.seed_everything(config.optimizer.seed, verbose=False)
    forecaster = new_forecaster(data, split, config, is_quiet=is_quiet or global_rank() > 0)
    if config.optimizer.freeze is not None:
        freeze_field(forecaster)
    world = num_processes(devices, space_shards)
    if space_shards > 1:
        # Raises an error early for models that do not support it.
        forecaster.share_sites(SINGLE_PROCESS)
    rank, groups = global_rank() // space_shards, world // space_shards
    sites = data.geometry()
    rank_among_sites = global_rank() % space_shards
    partition = SitePartition.of(sites.num_points, sites.grid_shape, rank_among_sites, space_shards)
    portion = {"reconstructs": config.task.phase == "field", "partition": partition}
    training = TimeSliceExamples(
        data, split.training, num_steps=config.optimizer.rollout, **portion
    )
    validation = TimeSliceExamples(data, split.validation, **portion)
    batch_size, accumulate = config.optimizer.batch_size, config.optimizer.accumulate
    order = EpochShuffle(len(training), config.optimizer.seed)
    batches = Batches(order, batch_size, rank=rank, world=groups)
    ahead = prefetch_settings(training)
    loader = DataLoader(training, batch_sampler=batches, collate_fn=collate, **ahead)
    subset = torch.utils.data.Subset(validation, range(rank, len(validation), groups))
    size = max(1, batch_size // groups)
    validation_loader = DataLoader(subset, size, collate_fn=collate, **ahead)
    budget = Budget(config, num_steps=config.budget.epochs * -(-len(loader) // accumulate))
    module = TrainingModule(forecaster, config, budget, partition)
    checkpoints = RunCheckpoints(run.checkpoints, batches)
    if global_rank() == 0:
        run.claim(config)
        run.checkpoints.mkdir(exist_ok=True)
    newest = newest_checkpoint(run)
    if newest is None:
        for note in (note for _, note in parts.values() if note):
            module.announce(note)
        _prepare(module, loader, world)
    if newest is None or not _has_ended(newest, config):
        trainer = _trainer(run, config, checkpoints, world, is_quiet, logs_tensorboard)
        with _without_advice(), reports_lost_processes(world, lambda: _newest_name(run)):
            try:
                trainer.fit(module, loader, validation_loader, ckpt_path=newest, weights_only=True)
            except SystemExit as stopped:
                # Lightning turns Ctrl-C into `SystemExit`.
                raise KeyboardInterrupt from stopped
    if space_shards > 1:
        forecaster.share_sites(SINGLE_PROCESS)
    best = best_checkpoint(run)
    assert best is not None
    module.load_state_dict(torch.load(best, weights_only=True, map_location="cpu")["state_dict"])
    if global_rank() == 0:
        if config.task.blend and fits_blend:
            forecaster.eval()
            forecaster = fit_blend(forecaster, data, split.training, split.validation)
        _finish(run, forecaster, config)
    return forecaster


def _prepare(module: TrainingModule, loader: DataLoader[Example], world: int) -> None:
    """Initialises weights from another run and runs the range test, if configured."""
    config = module.config
    if config.optimizer.init is not None:
        required = () if config.optimizer.freeze is None else FIELD
        origin = Path(config.optimizer.init)
        module.announce(initialise_from(module.forecaster, origin, required=required))
        module.remember_start()
    seconds = config.budget.budget_cpu or 0.0
    # Processes would measure different times.
    if config.optimizer.learning_rate is not None or seconds < MIN_BUDGET or world > 1:
        return
    started = process_time()
    module.budget.rate, message = find_rate(
        module.forecaster,
        loader,
        module.loss_of,
        partial(make_optimizer, config=config),
        usual=config.learning_rate,
        clip=config.optimizer.clip,
        seconds=FRACTION * seconds,
    )
    module.budget.spent_before = process_time() - started
    module.announce(message)


def _newest_name(run: Run) -> str | None:
    """Returns the path of the newest checkpoint, for a message."""
    path = newest_checkpoint(run)
    return None if path is None else str(path)


def _has_ended(checkpoint: Path, config: RunConfig) -> bool:
    """Returns whether a checkpoint is the end of a run with this budget."""
    stored = torch.load(checkpoint, weights_only=True, map_location="cpu")["run"]
    return bool(stored["reason"]) and stored["limits"] == vars(config.budget)


def _finish(run: Run, forecaster: Forecaster, config: RunConfig) -> None:
    """Saves the model and marks the run as finished; deletes results of an earlier model."""
    newest = newest_checkpoint(run)
    assert newest is not None
    last = torch.load(newest, weights_only=True, map_location="cpu")
    best, stored = last["callbacks"][KEY], last["run"]
    for path in (run.results_file, run.report_file):
        path.unlink(missing_ok=True)
    forecaster.save(run.model_folder)
    best_epoch = best["best_epoch"]
    TrainingRecord(
        is_finished=True,
        reason=stored["reason"],
        limits=vars(config.budget),
        learning_rate=stored["rate"],
        best_score=best["best_score"],
        best_epoch=None if best_epoch is None else best_epoch + 1,
        epochs=last["epoch"] + 1,
        steps=last["global_step"],
        cpu_seconds=last["cpu_seconds"],
        events=tuple(stored["events"]),
    ).save(run.training_file)


@contextmanager
def _without_advice() -> Iterator[None]:
    """Hides warnings of Lightning and torch about intended behaviour."""
    with warnings.catch_warnings():
        # In-memory data needs no worker processes, other data one.
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        # Lightning uses a deprecated function of torch.
        warnings.filterwarnings("ignore", message=".*treespec.*", category=FutureWarning)
        # Logged values are already reduced over processes.
        warnings.filterwarnings("ignore", message=".*sync_dist=True.*")
        # Resumed runs write to their own folder.
        warnings.filterwarnings("ignore", message=".*Checkpoint directory.*exists.*")
        # Our batch sampler resumes in the middle of an epoch.
        warnings.filterwarnings("ignore", message=".*ended before the epoch ended.*")
        yield


def _average(average: Tensor, current: Tensor, count: Tensor, *, decay: float) -> Tensor:
    """Returns the exponential moving average; what does not change keeps its last bit."""
    return torch.where(current == average, average, decay * average + (1 - decay) * current)


def _trainer(
    run: Run,
    config: RunConfig,
    checkpoints: RunCheckpoints,
    world: int,
    is_quiet: bool,
    logs_tensorboard: bool,
) -> lightning.Trainer:
    callbacks: list[Callback] = [checkpoints]
    if config.optimizer.ema:
        callbacks.append(WeightAveraging(avg_fn=partial(_average, decay=config.optimizer.ema)))
    if not is_quiet:
        callbacks.append(ProgressLine())
    loggers: list[Logger] = [CSVLogger(run.folder, name="log", flush_logs_every_n_steps=1)]
    if logs_tensorboard:
        loggers.append(TensorBoardLogger(run.folder, name="tensorboard"))
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    return lightning.Trainer(
        max_epochs=config.budget.epochs,
        devices=local if world > 1 else "auto",
        num_nodes=world // local,
        strategy="ddp" if world > 1 else "auto",
        use_distributed_sampler=False,
        callbacks=callbacks,
        logger=loggers,
        precision=config.optimizer.precision,
        accumulate_grad_batches=config.optimizer.accumulate,
        gradient_clip_val=config.optimizer.clip,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
    )
