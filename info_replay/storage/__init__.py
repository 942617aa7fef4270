"""All that this package knows of the inside of TorchRL's storages.

* :mod:`~info_replay.storage.slots`: reading and writing items;
* :mod:`~info_replay.storage.entries`: which entries can be stored;
* :mod:`~info_replay.storage.undo`: taking back what a refused batch has written;
* :mod:`~info_replay.storage.slot_range`: the last slots of a storage;
* :mod:`~info_replay.storage.generations`: how often each slot was written;
* :mod:`~info_replay.storage.write_back`: new features of sampled items;
* :mod:`~info_replay.storage.priorities`: priorities of sampled items;
* :mod:`~info_replay.storage.process_lock`: a lock that survives its holders;
* :mod:`~info_replay.storage.buffer_state` and
  :mod:`~info_replay.storage.sampler_state`: a whole buffer as plain values, and back;
* :mod:`~info_replay.storage.tree` and :mod:`~info_replay.storage.snapshot`: plain
  values and tensors as files that are replaced whole.
"""
