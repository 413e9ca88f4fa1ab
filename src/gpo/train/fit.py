"""From a configuration to a trained model in a run folder."""

import logging
import warnings
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint, RichProgressBar
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader

from gpo.data.split import Split
from gpo.data.trajectories import Pairs, Trajectories
from gpo.model.config import OperatorConfig
from gpo.model.operator import GaussianParticleOperator
from gpo.train.budget import Budget
from gpo.train.config import RunConfig
from gpo.train.examples import EpochShuffle, collate, make_examples, training_statistics
from gpo.train.forecaster import Forecaster, Task
from gpo.train.module import TrainingModule
from gpo.train.run_folder import Run, split_of

SCORE = "validation/relative_l2"


def train(
    run: Run, data: Trajectories | Pairs, config: RunConfig, *, is_quiet: bool = False
) -> Forecaster:
    """Trains, or goes on training, and leaves the best model in the run folder.

    Args:
        run: The folder, claimed for this configuration.
        data: What to learn from.
        config: How.
        is_quiet: Without progress bars, for logs.
    """
    split = split_of(data, config)
    lightning.seed_everything(config.seed, verbose=False)
    forecaster = _new_forecaster(data, split, config)
    training = make_examples(data, split.training)
    order = EpochShuffle(len(split.training), config.seed)
    loader = DataLoader(training, config.batch_size, sampler=order, collate_fn=collate)
    validation = DataLoader(
        make_examples(data, split.validation), config.batch_size, collate_fn=collate
    )
    budget = Budget(config, num_steps=config.epochs * len(loader))
    module = TrainingModule(forecaster, config, budget)
    best = ModelCheckpoint(run.checkpoints, "best", monitor=SCORE, save_last=True)
    trainer = _trainer(run, config, best, is_quiet)
    with warnings.catch_warnings():
        # Advice about worker processes, which small data in memory does not need.
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        # Lightning walks batches in a way that torch will drop.
        warnings.filterwarnings("ignore", message=".*treespec.*", category=FutureWarning)
        # That a run goes on in its own folder is what we want.
        warnings.filterwarnings("ignore", message=".*Checkpoint directory.*exists.*")
        try:
            trainer.fit(module, loader, validation, ckpt_path=_newest(run), weights_only=True)
        except SystemExit as stopped:
            # Lightning turns Ctrl-C into an exit of its own.
            raise KeyboardInterrupt from stopped
    chosen = best.best_model_path or run.checkpoints / "last.ckpt"
    stored = torch.load(chosen, weights_only=True, map_location="cpu")
    module.load_state_dict(stored["state_dict"])
    forecaster.save(run.model_folder)
    return forecaster


def _newest(run: Run) -> str | None:
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


def _new_forecaster(data: Trajectories | Pairs, split: Split[Any], config: RunConfig) -> Forecaster:
    task = make_task(data, split, config)
    domain = data.geometry().domain
    operator = OperatorConfig(
        in_channels=task.history * len(task.inputs),
        out_channels=len(task.outputs),
        dim=domain.dim,
        domain=domain,
        hidden_dim=config.hidden_dim,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_gaussians=config.num_gaussians,
        centers=config.centers,
        fourier_seed=config.seed,
    )
    return Forecaster(GaussianParticleOperator(operator), task)


def make_task(data: Trajectories | Pairs, split: Split[Any], config: RunConfig) -> Task:
    """Returns what is predicted from what, with statistics of the training split."""
    is_map = isinstance(data, Pairs)
    inputs, outputs, changes = training_statistics(data, split.training)
    given, wanted = (data.inputs, data.outputs) if is_map else (data.variables, data.variables)
    return Task(
        inputs=tuple(variable.name for variable in given),
        outputs=tuple(variable.name for variable in wanted),
        units=tuple(variable.units for variable in wanted),
        history=1 if is_map else config.history,
        lead=0 if is_map else config.lead,
        predict="state" if is_map else config.predict,
        input_mean=tuple(inputs.mean.tolist()),
        input_std=tuple(inputs.std.tolist()),
        output_mean=tuple(outputs.mean.tolist()),
        output_std=tuple(outputs.std.tolist()),
        increment_std=tuple(changes.tolist()),
    )


def _trainer(
    run: Run, config: RunConfig, best: ModelCheckpoint, is_quiet: bool
) -> lightning.Trainer:
    callbacks: list[Callback] = [best, EarlyStopping(SCORE, patience=config.patience)]
    if not is_quiet:
        callbacks.append(RichProgressBar())
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return lightning.Trainer(
        max_epochs=config.epochs,
        callbacks=callbacks,
        logger=CSVLogger(run.folder, name="log"),
        gradient_clip_val=config.clip,
        enable_progress_bar=not is_quiet,
        enable_model_summary=False,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
    )
