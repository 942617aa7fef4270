"""What a finished run leaves to use: its network and its memory, :func:`load_run`.

Both files hold plain values and tensors only; reading them runs no code from them.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from agents.objects import is_object, object_name
from agents.runs.checkpoint import (
    expecting_a_fit,
    load_checkpoint,
    save_checkpoint,
)
from agents.runs.folder import RunFolder
from agents.runs.saved_states import check_network_state, check_parts, check_whole
from agents.supervised.assembly import NetworkSource
from agents.supervised.config import ExperimentConfig
from agents.supervised.inputs import scale
from agents.supervised.learner import Learner
from agents.supervised.memory import make_memory
from agents.supervised.networks import FeatureNetwork, make_network
from continual_envs import Dataset, Standardization, StreamEnv
from continual_envs.datasets import to_inputs
from continual_envs.datasets.standardization import Scale
from info_replay import SelectiveReplayBuffer

__all__ = [
    "SavedRun",
    "check_savable",
    "load_run",
    "restore_agent",
    "save_run",
    "stored_items",
]

_NETWORK, _MEMORY = "network.pt", "memory.pt"
_ADVICE = "Run it again to have it anew"
_BATCH = 1000
_CONTENT = (
    "weights",
    "input_shape",
    "input_dtype",
    "num_classes",
    "num_outputs",
    "prediction_range",
    "standardization",
)


@dataclass(frozen=True)
class SavedRun:
    """A finished run, read by :func:`load_run`.

    Attributes:
        config: its settings.
        result: what came out, as in ``result.json``.
        network: with the weights at the end, in evaluation mode.
        memory: as it was at the end; ``None`` if there was none, or one that was not
            made from the settings.
        input_shape: of one input.
        input_dtype: of inputs: ``"uint8"`` or ``"float32"``.
        num_classes: number of classes, ``None`` if numbers are predicted.
        standardization: of the data set's numbers, ``None`` if they are as they were.
        prediction_range: lowest and highest number that is predicted.
    """

    config: ExperimentConfig
    result: dict[str, Any]
    network: FeatureNetwork
    memory: SelectiveReplayBuffer | None
    input_shape: tuple[int, ...]
    input_dtype: str
    num_classes: int | None
    standardization: Standardization | None
    prediction_range: tuple[Tensor, Tensor]

    @torch.no_grad()
    def predict(self, inputs: ArrayLike) -> NDArray[Any]:
        """The network's predictions.

        Args:
            inputs: as the data was given, shape ``(n, *input_shape)``; images may have
                their channels last.

        Returns:
            Classes, or numbers in the units of the data set's targets.

        Raises:
            ValueError: if the inputs have another shape or type.
        """
        given = to_inputs(inputs, "inputs")
        if (given.shape[1:], str(given.dtype)) != (self.input_shape, self.input_dtype):
            shape = ", ".join(["n", *map(str, self.input_shape)])
            raise ValueError(
                f"inputs must be {self.input_dtype} of shape ({shape}), as the data "
                f"was, got {given.dtype} of shape {given.shape}"
            )
        if self.standardization is not None:
            given = self.standardization.inputs(given)
        parts = [
            self.network(scale(torch.from_numpy(given[start : start + _BATCH])))[1]
            for start in range(0, len(given), _BATCH)
        ]
        outputs = torch.cat(parts)
        if self.num_classes is not None:
            return outputs.argmax(1).numpy()
        numbers = outputs.clamp(*self.prediction_range).numpy()
        if self.standardization is not None:
            numbers = self.standardization.restore(numbers)
        return numbers[:, 0] if numbers.shape[1] == 1 else numbers


def check_savable(agent: Learner, env: StreamEnv) -> None:
    """Refuse what could be learned with, but not be saved and read back.

    Args:
        agent: the learner.
        env: its stream.

    Raises:
        ValueError: saying why.
    """
    file = io.BytesIO()
    try:
        torch.save([agent.state_dict(), env.state_dict()], file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except (TypeError, pickle.PickleError, AttributeError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, pickle.UnpicklingError):
            # torch's own message tells how to run the code in the file nevertheless.
            text = "the state of learner or stream is not plain values and tensors"
        raise ValueError(f"the run cannot be saved: {text}") from error


def save_run(
    folder: RunFolder,
    agent: Learner,
    dataset: Dataset,
    *,
    prediction_range: tuple[Any, Any],
    own_memory: bool,
) -> None:
    """Write what :func:`load_run` reads.

    Args:
        folder: of the run.
        agent: the learner at the end.
        dataset: that it learned from.
        prediction_range: lowest and highest number to predict.
        own_memory: whether its memory was not made from the settings.

    Raises:
        CheckpointError: if a file cannot be written.
    """
    content = {
        "weights": agent.network.state_dict(),
        "input_shape": list(dataset.input_shape),
        "input_dtype": str(dataset.train.inputs.dtype),
        "num_classes": dataset.num_classes,
        "num_outputs": dataset.num_outputs,
        "prediction_range": [torch.as_tensor(bound) for bound in prediction_range],
        "standardization": _numbers_of(dataset.standardization),
    }
    save_checkpoint(folder.path / _NETWORK, content)
    if agent.memory is not None:
        state = agent.memory.state_dict()
        content = {"own": own_memory, "state": state}
        save_checkpoint(folder.path / _MEMORY, content)


def restore_agent(folder: RunFolder, agent: Learner) -> None:
    """Give a learner the weights and the memory of a finished run.

    Args:
        folder: of the run.
        agent: made from the settings of the run.

    Raises:
        CheckpointError: if a file is missing, damaged, or of another run; nothing is
            changed then.
        ValueError: if the learner has another network; nothing is changed, either.
    """
    weights = _read(folder.path / _NETWORK, "weights")["weights"]
    _check_network(agent.network, weights, folder.path)
    path = folder.path / _MEMORY
    # Without it, the checkpoint that is left over is the only one that has the memory.
    if agent.memory is not None and (path.exists() or folder.has_checkpoint):
        state = _read(path, "state")["state"]
        with expecting_a_fit(path):
            agent.memory.load_state_dict(state)
    agent.network.load_state_dict(weights)


def load_run(
    folder: str | Path,
    *,
    network: str | NetworkSource | None = None,
    own_code: bool = False,
) -> SavedRun:
    """Read a finished run, for predictions or to go on with its memory.

    Nothing is imported that only the folder names, unless ``own_code`` says so.

    Args:
        folder: of the run.
        network: as the run was given it, where it is the user's own.
        own_code: whether what the run's settings call ``module:Name`` may be imported:
            its own network, policy and criterion.

    Returns:
        The run, on the CPU.

    Raises:
        RunError: if it is not finished.
        CheckpointError: if a file is missing or damaged.
        ValueError: if the network is needed and not given, or own code is.

    Example:
        >>> import tempfile
        >>> from agents import train
        >>> folder = tempfile.mkdtemp()
        >>> _ = train("SplitDigits", policy="infors", steps=20, folder=folder)
        >>> run = load_run(folder)
        >>> run.predict(run.memory[:]["observation"]).shape, len(run.memory)
        ((50,), 50)
    """
    place = RunFolder(folder)
    result = place.read("result.json")
    config = _read_config(place, network, own_code=own_code)
    saved = _read(place.path / _NETWORK, *_CONTENT)
    with expecting_a_fit(place.path / _NETWORK):
        for size in (*saved["input_shape"], saved["num_outputs"]):
            check_whole(size, "a size")
        shape = tuple(saved["input_shape"])
        low, high = map(torch.as_tensor, saved["prediction_range"])
        standardization = _standardization_of(saved["standardization"])
        outputs, classes = saved["num_outputs"], saved["num_classes"]
    chosen = config.network if network is None else network
    made = make_network(chosen, shape, outputs, config.seed, config.feature)
    _check_network(made, saved["weights"], place.path)
    made.load_state_dict(saved["weights"])
    memory = None
    if (place.path / _MEMORY).exists():
        content = _read(place.path / _MEMORY, "own", "state")
        with expecting_a_fit(place.path / _MEMORY):
            if not content["own"]:
                here = replace(config, device="cpu")
                memory = make_memory(here, classes, made)
                assert memory is not None
                memory.load_state_dict(content["state"])
    return SavedRun(
        config,
        result,
        made.eval(),
        memory,
        shape,
        str(saved["input_dtype"]),
        classes,
        standardization,
        (low, high),
    )


def _check_network(network: torch.nn.Module, weights: Any, folder: Path) -> None:
    try:
        check_network_state(network, weights)
    except ValueError as error:
        raise ValueError(f"this is not the network of {folder}: {error}") from error


def _read(path: Path, *parts: str) -> dict[str, Any]:
    content = load_checkpoint(path, _ADVICE)
    with expecting_a_fit(path):
        check_parts(content, *parts, name="the file")
    return content


def _read_config(
    place: RunFolder, network: str | NetworkSource | None, *, own_code: bool
) -> ExperimentConfig:
    """The settings of a run, without importing what they name."""
    settings = place.read("config.json")
    own = {
        name: str(settings[name])
        for name in ("network", "policy", "criterion")
        if ":" in str(settings.get(name)) or is_object(str(settings.get(name)))
    }
    if network is not None:
        own.pop("network", None)
        name = object_name(network)
        settings["network"] = f"<{name.strip('<>')}>" if ":" in name else name
    for name, value in own.items():
        if is_object(value):
            raise ValueError(
                f"the {name} {value} of {place.path} was an object in Python: give it "
                f"again, load_run(folder, {name}=...)"
            )
        if not own_code:
            raise ValueError(
                f"the {name} of {place.path} is {value}: load_run(folder, "
                "own_code=True) imports it"
            )
    if ":" in str(settings.get("learner")):
        settings["learner"] = f"<{settings['learner']}>"  # predictions do not need it
    return place.config(ExperimentConfig, settings)


def _numbers_of(given: Standardization | None) -> dict[str, Any] | None:
    """A standardization as tensors."""
    if given is None:
        return None
    return {
        name: part and {key: torch.as_tensor(value) for key, value in part.items()}
        for name, part in asdict(given).items()
    }


def _standardization_of(saved: dict[str, Any] | None) -> Standardization | None:
    """A standardization from tensors."""
    if saved is None:
        return None
    return Standardization(
        **{
            name: part and Scale(**{key: v.numpy() for key, v in part.items()})
            for name, part in saved.items()
        }
    )


def stored_items(folder: RunFolder) -> dict[str, Tensor]:
    """The entries of the items in a finished run's memory, none if there is none.

    Args:
        folder: of the run.

    Raises:
        CheckpointError: if the file is damaged.
    """
    path = folder.path / _MEMORY
    if not path.exists():
        return {}
    content = load_checkpoint(path, "Delete it to see all but the images")
    if "state" not in content:  # of a run of version 0.1
        return content
    with expecting_a_fit(path):
        storage = content["state"]["_storage"]
        return {
            name: entry[: storage["_len"]]
            for name, entry in storage["_storage"].items()
            if isinstance(entry, Tensor)
        }
