"""Walking a tree to kill it: a pass that finds nobody alive is a proof only if nobody could slip past it."""

import pytest

import stage

pytestmark = pytest.mark.timeout(120)

_PARENT_ENDS = """
import json, os, signal, census
from killpool.system import procfs, syscalls, treekill

syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
read, write = os.pipe()
parent = os.fork()
if parent == 0:
    if os.fork() == 0:
        os.write(write, b"%d" % os.getpid())
    while True:
        signal.pause()
child = int(os.read(read, 20))
was_alive = census.is_alive(child) and census.parent(child) == parent
rounds = 0

def roots():
    global rounds
    rounds += 1
    listed = dict.fromkeys(procfs.children_of(os.getpid()), os.getpid())
    if rounds == 1:  # between our look at our children and the look at theirs
        os.kill(parent, signal.SIGKILL)
        os.waitid(os.P_PID, parent, os.WEXITED | os.WNOWAIT)
    return listed

count = treekill.walk_kill(roots)
is_dead = census.gone([child], 2.0)
if not is_dead:
    os.kill(child, signal.SIGKILL)
print(json.dumps([was_alive, count, is_dead]))
"""


def test_a_child_whose_parent_ends_while_the_tree_is_listed_is_not_missed() -> None:
    # The orphan comes to us after we had looked at our own children; its parent is a zombie when its turn comes.
    done = stage.OWN.run("-c", _PARENT_ENDS)
    assert stage.last_json(done.out, done.err) == [True, 1, True]
