"""Coresets: :mod:`~info_replay.coreset.selection`, :mod:`~info_replay.coreset.kernels`.

They know nothing of memories; :class:`~info_replay.CoresetWriter` uses them.
"""
