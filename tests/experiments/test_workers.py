"""Tasks in processes, some of which die."""

import signal
import subprocess
import sys
import time
from multiprocessing import active_children

from daes.experiments.workers import WorkerExit, run_tasks


def test_a_process_that_dies_takes_no_other_with_it(tmp_path, monkeypatch):
    (tmp_path / "tasks_for_test.py").write_text(
        "import os, signal, sys\n"
        "def task(shared, item, note):\n"
        "    note(('begun', item))\n"
        "    if item == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    if item == 2: sys.exit(7)\n"
        "    return shared + item\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import tasks_for_test

    notes = []
    found = dict(run_tasks(tasks_for_test.task, 100, range(4), jobs=2, on_note=lambda item, note: notes.append(note)))
    assert (found[0], found[3]) == (100, 103)
    assert found[1] == WorkerExit(-signal.SIGKILL)
    assert str(found[1]) == "its process was ended by SIGKILL, as happens when memory runs out"
    assert str(found[2]) == "its process ended with exit code 7"
    assert sorted(notes) == [("begun", item) for item in range(4)]


def test_a_process_that_dies_between_two_tasks_takes_no_other_with_it(tmp_path, monkeypatch):
    (tmp_path / "late_task_for_test.py").write_text(
        "import os, threading, time\n"
        "def wait(path):\n"
        "    while not path.exists(): time.sleep(0.01)\n"
        "def task(shared, item, note):\n"
        "    if item == 0: threading.Thread(target=lambda: (wait(shared), os._exit(7)), daemon=True).start()\n"
        "    else: wait(shared)\n"
        "    return item\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import late_task_for_test

    found, others = {}, set(active_children())
    for item, result in run_tasks(late_task_for_test.task, tmp_path / "now", range(4), jobs=2):
        found[item] = result
        if item == 0:
            (tmp_path / "now").touch()
            while len(set(active_children()) - others) > 1:  # until the first process is gone
                time.sleep(0.01)
    assert found == {0: 0, 1: 1, 2: WorkerExit(7), 3: 3}


def test_processes_end_quietly_if_the_one_that_started_them_was_killed(tmp_path):
    (tmp_path / "main.py").write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "from daes.experiments.workers import run_tasks\n"
        "def task(folder, item, note):\n"
        "    (folder / f'begun {item}').touch()\n"
        "    while not (folder / 'killed').exists(): time.sleep(0.01)\n"
        "    return item\n"
        "if __name__ == '__main__':\n"
        "    list(run_tasks(task, Path(sys.argv[1]), range(2), jobs=2))\n"
    )
    process = subprocess.Popen([sys.executable, tmp_path / "main.py", tmp_path], stderr=subprocess.PIPE)
    while len(list(tmp_path.glob("begun *"))) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    (tmp_path / "killed").touch()
    assert process.stderr.read() == b""  # at its end all of them have ended
    process.stderr.close()
