"""Learning from a stream of labeled samples, with a memory.

* :mod:`~agents.supervised.experiment`: a run from its
  :mod:`~agents.supervised.config` (and :mod:`~agents.supervised.presets`) to its
  :mod:`~agents.supervised.metrics`;
* :mod:`~agents.supervised.derpp`: the learner, DER++; what a run asks of any is in
  :mod:`~agents.supervised.learner`;
* :mod:`~agents.supervised.memory`: what it replays from, drawn by
  :mod:`~agents.supervised.samplers`;
* :mod:`~agents.supervised.networks`, :mod:`~agents.supervised.inputs`,
  :mod:`~agents.supervised.gradients`: what it learns with;
* :mod:`~agents.supervised.show`: the result as text and pictures.
"""
