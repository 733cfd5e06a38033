"""The shared-memory page, the frames and the records that host, supervisor and worker exchange: layout only, pure.

A worker's memory is one memfd: page 0 is the *board* (64-bit words, each written by one side only), the rest is the
*ring* of results.

    host ── data socket: CALL frames ──> worker          worker ── ring: RECORDs, committed by HEAD ──> host
    worker writes STARTED, START, DEADLINE ── board ──> supervisor (reads), which writes ARMED

The rules that make it safe (each has a test):
  * STARTED is written before a call's arguments are looked at, so a poisonous argument is charged to itself.
  * A record exists from the instant HEAD covers it; COMMITTED is the last call that has one.
  * CANCEL[n % WINDOW] == n withdraws call n: the worker looks at it after it wrote STARTED, the host looks at
    STARTED after it wrote CANCEL and a barrier, so at least one of the two sees the other.
  * COMMITTING and DUE are a pair of the same kind: either the worker sees that its call is due, and commits nothing, or
    the supervisor sees that it is committing, and stops it to see how that ended.
"""

import struct
from typing import Final

PAGE: Final = 4096

# Words of the board.  The worker's:
PHASE: Final = 0
STARTED: Final = 1
START: Final = 2  # monotonic ns
DEADLINE: Final = 3  # monotonic ns, 0 = none
COMMITTED: Final = 4
HEAD: Final = 5  # bytes of the ring ever committed
LIMITS: Final = 6  # which limits the running call has, 0 = the pool's
COMMITTING: Final = 8  # the call whose result is about to be committed
CPU0: Final = 7  # CPU ns the process and its reaped children had used when the call began
# the host's, a cache line away:
TAIL: Final = 16  # bytes of the ring ever consumed
HOST_ARMED: Final = 17  # 1: the host sleeps, ring its bell
SENT: Final = 18  # counts sends: a worker that still looks for its next call sees it without a system call
# the supervisor's:
ARMED: Final = 24  # monotonic ns it will wake by itself
DUE: Final = 25  # the call that it is about to kill: a call that is not COMMITTING yet never will be
# the host's again:
CANCEL: Final = 64  # WINDOW words

NEVER: Final = 2**63 - 1

PHASE_STARTING: Final = 0
PHASE_READY: Final = 1
PHASE_IMPORTING: Final = 2
PHASE_INITIALIZING: Final = 3
PHASE_NAMES: Final = ("starting", "idle", "importing", "initializing")

# A CALL frame: payload bytes, flags, call number, timeout ns (0 none), limits id.
CALL: Final = struct.Struct("=IIQQQ")
CALL_BIG: Final = 1  # the payload is in a sealed memfd that came with this frame
CALL_IMPORT: Final = 2  # the payload begins with a module name (u16 length): import it before the clock starts
CALL_INIT: Final = 4  # run the pool's initializer: no call, no number
CALL_QUIT: Final = 8  # end cleanly
MODULE: Final = struct.Struct("=H")

# A RECORD header: kind, inline bytes, call number, start ns, end ns, user us, system us (both of the process so
# far), peak RSS in KiB, bytes of the value.
RECORD: Final = struct.Struct("=IIQQQQQQQ")
KIND_VALUE: Final = 1
KIND_ERROR: Final = 2
KIND_SKIPPED: Final = 3
KIND_PAD: Final = 4
KIND_READY: Final = 5  # the initializer returned
KIND_INIT_ERROR: Final = 6
KINDS: Final = (KIND_VALUE, KIND_ERROR, KIND_SKIPPED, KIND_READY, KIND_INIT_ERROR)
KIND_MASK: Final = 0xFF
FLAG_BIG: Final = 0x100  # the value is in a sealed memfd sent over the data socket before this record was committed
FLAG_OUTPUT: Final = 0x200  # an OUTPUT header and the captured bytes come before the value
OUTPUT: Final = struct.Struct("=QQII")  # total bytes of stdout, of stderr, kept bytes of each

LENGTH: Final = struct.Struct("=I")  # before each control frame, and before a JSON result


def phase_name(phase: int) -> str:
    """Return the name of a phase word; a task can write anything there, which then means nothing."""
    return PHASE_NAMES[phase] if phase < len(PHASE_NAMES) else "running"


def padded(size: int) -> int:
    """Return `size` rounded up to the ring's 8-byte alignment."""
    return (size + 7) & ~7


def contiguous(position: int, size: int, capacity: int) -> int:
    """Return how many bytes of padding bring a record of `size` from `position` to where it does not wrap."""
    offset = position % capacity
    return 0 if offset + size <= capacity else capacity - offset
