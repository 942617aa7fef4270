"""What every run needs, whatever it learns.

* :mod:`~agents.runs.folder`: the files of a run;
* :mod:`~agents.runs.events`: what is noted along a run, in its folder and for
  TensorBoard;
* :mod:`~agents.runs.checkpoint`: the state of a run in one file;
* :mod:`~agents.runs.resuming`, :mod:`~agents.runs.saved_states`: what a run goes on
  from, read and checked before anything is changed or deleted;
* :mod:`~agents.runs.files`: how all of these are written;
* :mod:`~agents.runs.machine`: the device and the threads to compute on;
* :mod:`~agents.runs.divergence`: the error of training that diverges;
* :mod:`~agents.runs.randomness`: torch's global random numbers, borrowed;
* :mod:`~agents.runs.interrupts`, :mod:`~agents.runs.stopwatch`,
  :mod:`~agents.runs.pictures`.
"""
