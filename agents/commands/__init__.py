"""The commands of ``info-replay``, one per module.

A command has ``HELP``, one line; ``DESCRIPTION``; ``add_options(parser)``; and
``run(options)``, which returns the exit status. Modules are light: what takes seconds
to import is imported when a command runs, so that help comes at once.
"""
