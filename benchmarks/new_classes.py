"""Why moments over all history shut new classes out of InfoGS: Split MNIST, seed 0.

Holds the last batch of task 1 and the first three of task 2 against the memory and the
moments that they meet. ``python -m benchmarks.new_classes`` saves what it finds in
``docs/results/split_mnist_new_classes.jsonl``.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  the name everybody knows

from agents.supervised.config import ExperimentConfig
from agents.supervised.experiment import Experiment
from agents.supervised.inputs import scale
from continual_envs import make_stream
from info_replay import MIC, learnability


def main() -> None:
    """Measure both policies and save one line per batch."""
    lines = []
    for policy in ("infogs", "infors"):
        config = ExperimentConfig.preset(
            "SplitMNIST", policy=policy, alpha=1.0, decay=None
        )
        experiment = Experiment(config)
        agent, writer = experiment.agent, experiment.agent.memory.writer
        end = experiment.env.boundaries[0]
        # Tells the labels of a batch before the learner is told.
        ahead = make_stream(config.env, batch_size=config.batch_size)
        for step in range(end + 3):
            if step >= end - 1:
                inputs = scale(torch.from_numpy(experiment.observation))
                ahead.load_state_dict(experiment.env.state_dict())
                *_, info = ahead.step(np.zeros(config.batch_size, dtype=np.int64))
                labels = torch.from_numpy(info["label"])
                with torch.no_grad():
                    features, _ = agent.network(inputs)
                batch = agent.memory.posterior.candidates(
                    features, F.one_hot(labels, 10)
                )
                point = {"noise": config.noise, "num_outputs": 10}
                learned = learnability(batch.leverage, batch.squared_error, **point)
                scores = MIC()(batch.leverage, batch.squared_error, **point)
                found = {
                    "policy": policy,
                    "step": step,
                    "labels": labels.unique().tolist(),
                    "learnability": [float(learned.mean()), float(learned.max())],
                    "criterion": float(scores.mean()),
                    "criterion_threshold": writer.moments.mean,
                }
                if policy == "infogs":
                    found["learnability_threshold"] = writer.learnability_moments.mean
                lines.append(json.dumps(found))
                print(lines[-1])
            experiment.advance()
    results = Path(__file__).parent.parent / "docs" / "results"
    path = results / "split_mnist_new_classes.jsonl"
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
