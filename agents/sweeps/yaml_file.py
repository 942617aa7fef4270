"""Files that people write by hand: :func:`read_yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

__all__ = ["read_yaml"]


class _Loader(yaml.SafeLoader):
    """Refuses a name that is there twice: YAML's own would keep the last one only."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        # Before "<<" is replaced by what it stands for: names of that may come again.
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                line = key.start_mark.line + 1
                raise ValueError(f"{key.value!r} is there twice, again in line {line}")
            seen.add((key.tag, key.value))
        return node


def read_yaml(path: str | Path) -> Any:
    """What a YAML file says.

    Args:
        path: the file.

    Raises:
        ValueError: naming the file, if it cannot be read, is not YAML, or has a name
            twice.
    """
    file = Path(path).expanduser()
    try:
        return yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder: expected a YAML file") from None
    except OSError as error:
        raise ValueError(f"cannot read {path} ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"{path} is not YAML: {text}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
