"""Who learns from a stream and a memory.

In this room: :mod:`~agents.derpp` the learner, with its :mod:`~agents.networks`,
:mod:`~agents.inputs` and :mod:`~agents.samplers`; :mod:`~agents.experiment` a run from
its :mod:`~agents.config` to its :mod:`~agents.metrics`, with :mod:`~agents.checkpoint`
and :mod:`~agents.run_folder`; :mod:`~agents.cli` the command line, which begins in
:mod:`~agents.entry`, :mod:`~agents.show` what it prints and draws, and
:mod:`~agents.demo`.
"""
