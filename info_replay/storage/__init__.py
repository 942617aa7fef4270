"""All that this package knows of the inside of TorchRL's storages.

* :mod:`~info_replay.storage.slots`: reading and writing items;
* :mod:`~info_replay.storage.slot_range`: the last slots of a storage;
* :mod:`~info_replay.storage.generations`: how often each slot was written;
* :mod:`~info_replay.storage.write_back`: new features of sampled items;
* :mod:`~info_replay.storage.snapshot`: folders that are replaced whole.
"""
