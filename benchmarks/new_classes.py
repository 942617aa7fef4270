"""Why moments over all history shut new classes out of InfoGS: Split MNIST, seed 0.

Holds the last batch of task 1 and the first three of task 2 against the memory and the
moments that they meet. ``python -m benchmarks.new_classes`` saves what it finds in
``docs/results/split_mnist_new_classes.jsonl``.
"""

from __future__ import annotations

import json

import torch
import torch.nn.functional as F  # noqa: N812  the name everybody knows

from agents.config import ExperimentConfig
from agents.experiment import Experiment
from agents.inputs import scale
from benchmarks.split_mnist import RESULTS
from info_replay import MIC, learnability


def main() -> None:
    """Measure both policies and save a line a batch."""
    lines = []
    for policy in ("infogs", "infors"):
        config = ExperimentConfig.preset("SplitMNIST", policy=policy, alpha=1.0)
        experiment = Experiment(config)
        agent, writer = experiment.agent, experiment.agent.memory.writer
        end = experiment.env.boundaries[0]
        for step in range(end + 3):
            if step >= end - 1:
                inputs = scale(torch.from_numpy(experiment._observation))
                labels = torch.from_numpy(experiment.env._targets)
                with torch.no_grad():
                    features, _ = agent.network(inputs)
                batch = agent.memory.posterior.candidates(
                    features, F.one_hot(labels, 10)
                )
                point = {"noise": config.noise, "num_outputs": 10}
                learnt = learnability(batch.leverage, batch.squared_error, **point)
                scores = MIC()(batch.leverage, batch.squared_error, **point)
                found = {
                    "policy": policy,
                    "step": step,
                    "labels": labels.unique().tolist(),
                    "learnability": [float(learnt.mean()), float(learnt.max())],
                    "criterion": float(scores.mean()),
                    "criterion_threshold": writer.moments.mean,
                }
                if policy == "infogs":
                    found["learnability_threshold"] = writer.learnability_moments.mean
                lines.append(json.dumps(found))
                print(lines[-1])
            experiment._advance()
    path = RESULTS / "split_mnist_new_classes.jsonl"
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
