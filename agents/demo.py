"""What four memories learn from an imbalanced stream of digits.

Runs DER++ on Split Digits (scikit-learn's), balanced and with one task 30 times as
long, with each memory and several seeds; prints the table and draws the pictures. Run
it with ``make demo``.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
from pathlib import Path

import torch
from tqdm import tqdm

from agents.runs.folder import RunFolder
from agents.supervised.config import ExperimentConfig
from agents.supervised.experiment import Experiment
from agents.supervised.metrics import mean_and_standard_error
from agents.supervised.show import draw_pictures

__all__ = ["main", "run_all"]

POLICIES = ("auto", "rs", "cbrs", "infors")
IMBALANCES = (1, 30)
EPOCHS = 2
SEEDS = range(3)
PICTURES = Path("runs") / "demo"


def run_all(
    seeds: range = SEEDS, pictures: Path | None = PICTURES
) -> dict[tuple[str, int], list[float]]:
    """Run every policy, imbalance and seed.

    Args:
        seeds: of the runs.
        pictures: where pictures of the first seed's runs at the largest imbalance go.

    Returns:
        Average accuracies by policy and imbalance.
    """
    accuracies: dict[tuple[str, int], list[float]] = {}
    jobs = list(itertools.product(IMBALANCES, POLICIES, seeds))
    with tempfile.TemporaryDirectory() as folder:
        for imbalance, policy, seed in (bar := tqdm(jobs, unit="run")):
            bar.set_description(f"{policy}, imbalance {imbalance}")
            config = ExperimentConfig.preset(
                "SplitDigits",
                policy=policy,
                imbalance=imbalance,
                seed=seed,
                epochs=EPOCHS,
                batch_size=20,
                threads=1,
            )
            place = RunFolder(Path(folder) / f"{policy}-{imbalance}-{seed}")
            if pictures is not None and seed == seeds[0] and imbalance > 1:
                place = RunFolder(pictures / policy)
                for old in pictures.glob(f"{policy}/*"):
                    old.unlink()
            result = Experiment(config, place).run()
            accuracies.setdefault((policy, imbalance), []).append(result["average"])
            if pictures is not None and place.path.parent == pictures:
                draw_pictures(place)
    return accuracies


def main() -> None:
    """Run the demonstration and print its table."""
    torch.set_num_threads(1)
    logging.getLogger("torchrl").setLevel(logging.WARNING)
    accuracies = run_all()
    print("\nSplit Digits, memory of 50, average accuracy of five tasks after the last")
    print(f"mean ± standard error of {len(SEEDS)} seeds, in per cent\n")
    heads = "".join(f"{f'imbalance {r}':>18}" for r in IMBALANCES)
    print(f"{'policy':<10}{heads}")
    for policy in POLICIES:
        cells = []
        for imbalance in IMBALANCES:
            values = [100 * value for value in accuracies[policy, imbalance]]
            mean, error = mean_and_standard_error(values)
            cells.append(f"{f'{mean:.1f} ± {error:.1f}':>18}")
        print(f"{policy:<10}{''.join(cells)}")
    print(f"\npictures of the memories: {PICTURES}/*/*.png")


if __name__ == "__main__":
    main()
