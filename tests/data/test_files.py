import errno
import os
import stat

import pytest

import train
from data.files import is_locked

fcntl = pytest.importorskip("fcntl")


def test_a_file_system_without_locks_that_cannot_flush_folders_is_enough_for_a_run(workplace, monkeypatch, capsys):
    def refuse(number):
        raise OSError(number, os.strerror(number))

    def flush(descriptor, flush=os.fsync):
        refuse(errno.EINVAL) if stat.S_ISDIR(os.fstat(descriptor).st_mode) else flush(descriptor)

    monkeypatch.setattr("data.corpus.cache_folder", lambda: workplace / "cache")  # no lock keeps other tests out of it
    monkeypatch.setattr(os, "fsync", flush)
    for number in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
        monkeypatch.setattr(fcntl, "flock", lambda *_, number=number: refuse(number))
        assert train.main(["--config", "tiny.yaml", "train.max_steps=20"]) == 0
        warnings = capsys.readouterr().err.splitlines()
        assert any(line.startswith("warning: runs/tiny") for line in warnings)
        assert {f"its file system has no locks ({os.strerror(number)})" in line for line in warnings} == {True}
    assert not is_locked(workplace / "runs/tiny")
