"""Streams of continual-learning tasks as Gymnasium environments, built next."""
