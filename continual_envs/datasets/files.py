"""Where data sets lie on disk, and how they get there whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from continual_envs.datasets.base import DatasetError

__all__ = ["check_file", "data_root", "download", "expand_user", "staging"]

_VARIABLE = "CONTINUAL_ENVS_DATA"


def data_root(data_dir: str | Path | None) -> Path:
    """The folder of all data sets.

    Args:
        data_dir: the user's choice; else the environment variable
            ``CONTINUAL_ENVS_DATA``, else the user's cache folder.

    Returns:
        The folder; it need not exist.

    Raises:
        DatasetError: if it is in the home folder of nobody.
    """
    if data_dir is not None:
        return expand_user(data_dir).absolute()
    if os.environ.get(_VARIABLE):
        return expand_user(os.environ[_VARIABLE]).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache).absolute() / "continual_envs"


def expand_user(path: str | Path) -> Path:
    """A path whose ``~`` or ``~user`` is that user's home folder.

    Args:
        path: of the user's.

    Returns:
        The path.

    Raises:
        DatasetError: if there is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:  # pathlib's words do not name the path
        raise DatasetError(
            f"{path} is in the home folder of a user who does not exist"
        ) from None


def check_file(path: Path, md5: str) -> bytes:
    """Read a file whose checksum is known, without interpreting anything in it.

    Args:
        path: the file.
        md5: its published checksum.

    Returns:
        Its content.

    Raises:
        DatasetError: if it is another one.
    """
    content = path.read_bytes()
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise DatasetError(
            f"{path} is damaged: its md5 is {found}, expected {md5}. Delete the folder "
            f"{path.parent} to download the data set anew, or copy the file there"
        )
    return content


@contextlib.contextmanager
def staging(destination: Path) -> Iterator[Path]:
    """Fill a new folder that takes its place once the block ends without an error.

    Args:
        destination: where it goes; if somebody else was faster, theirs stays.

    Yields:
        An empty folder beside it.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(
        tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent)
    )
    try:
        yield folder
        folder.chmod(0o755)
        with contextlib.suppress(OSError):
            os.rename(folder, destination)
        if not destination.exists():
            raise DatasetError(f"cannot create {destination}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def download(
    urls: list[str], folder: Path, name: str, md5: str, destination: Path
) -> None:
    """Download a file from the first address that has it, with a progress bar.

    Args:
        urls: addresses, in order.
        folder: where it goes.
        name: of the file.
        md5: its published checksum.
        destination: where a user would put the data set by hand.

    Raises:
        DatasetError: if no address has it.
    """
    from torchvision.datasets.utils import download_url  # seconds to import

    problems = []
    for url in urls:
        try:
            download_url(url, folder, name, md5)
        except (OSError, RuntimeError, http.client.HTTPException) as error:
            problems.append(f"{url}: {error}")
        else:
            return
    raise DatasetError(
        f"cannot download {name} ({'; '.join(problems)}). Put the data set into "
        f"{destination} by hand, or point data_dir or {_VARIABLE} at a folder that has "
        "it"
    )
