"""Learning from a stream of samples, with a memory.

:func:`~agents.supervised.train.train` is a run in one call; what it is made of, in the
order in which a run needs it:

* :mod:`~agents.supervised.config`: the settings, with their
  :mod:`~agents.supervised.checks` and :mod:`~agents.supervised.presets`;
* :mod:`~agents.supervised.assembly`: from settings to stream, network, memory, learner;
* :mod:`~agents.supervised.networks`: networks by name, and any module as a
  :class:`~agents.supervised.feature_network.FeatureNetwork`;
* :mod:`~agents.supervised.learner`: what a run asks of a learner;
  :mod:`~agents.supervised.replay_learner`: what learners with a memory share;
  :mod:`~agents.supervised.derpp`, :mod:`~agents.supervised.er`,
  :mod:`~agents.supervised.er_ace`, :mod:`~agents.supervised.finetune`: one per file;
* :mod:`~agents.supervised.memory`: the memory of the settings;
* :mod:`~agents.supervised.experiment`: the run;
* :mod:`~agents.supervised.evaluation`, :mod:`~agents.supervised.metrics`,
  :mod:`~agents.supervised.results`, :mod:`~agents.supervised.callbacks`: what is told
  of it;
* :mod:`~agents.supervised.saved_run`, :mod:`~agents.supervised.show`: what it leaves;
* :mod:`~agents.supervised.frozen_features`: features of a network that does not learn.
"""
