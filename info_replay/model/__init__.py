"""The information-theoretic model (Sec. 2 of the paper); it knows nothing of TorchRL.

* :mod:`~info_replay.model.criteria`: how informative a point is;
* :mod:`~info_replay.model.posterior`: the Bayesian linear model, on
  :mod:`~info_replay.model.statistics` and :mod:`~info_replay.model.linear_algebra`;
* :mod:`~info_replay.model.moments`: the running mean and deviation of thresholds;
* :mod:`~info_replay.model.memory_posterior`: the posterior of what a memory holds;
* :mod:`~info_replay.model.scored_batch`: a batch held against that posterior;
* :mod:`~info_replay.model.candidates` and
  :mod:`~info_replay.model.sequential_scores`: a sequential algorithm at batch speed.
"""
