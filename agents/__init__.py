"""Who learns from a stream and a memory.

* :mod:`agents.supervised`: DER++ on streams of labeled samples;
* :mod:`agents.q_learning`: deep Q-learning in environments;
* :mod:`agents.runs`: what every run needs: its folder, checkpoints, Ctrl-C, pictures;
* :mod:`agents.settings`: typed settings;
* :mod:`agents.cli`: the command line, which begins in :mod:`agents.entry`;
* :mod:`agents.demo`: the demonstration.

The other modules (``config``, ``derpp``, ``dqn``, ``experiment``, ``gradients``,
``networks``, ``samplers``) are old places of names that have moved.
"""
