"""The layout that host, supervisor and worker share: words that do not overlap, records that do not wrap."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from killpool.core import wire
from killpool.spec import CONTROL_FRAME_MAX, INLINE_MAX, RING_SIZE, UNTRUSTED_RESULT_MAX, WINDOW

FAST = settings(max_examples=60, deadline=None)  # a busy machine is no failure
CACHE_LINE = 8  # words

WORKERS = (
    wire.PHASE,
    wire.STARTED,
    wire.START,
    wire.DEADLINE,
    wire.COMMITTED,
    wire.HEAD,
    wire.LIMITS,
    wire.CPU0,
)
HOSTS = (wire.TAIL, wire.HOST_ARMED, *range(wire.CANCEL, wire.CANCEL + WINDOW))
SUPERVISORS = (wire.ARMED, wire.DUE)


def test_every_word_of_the_board_has_one_place_inside_its_page() -> None:
    words = WORKERS + HOSTS + SUPERVISORS
    assert len(set(words)) == len(words)
    assert max(words) < wire.PAGE // 8


def test_no_two_writers_share_a_cache_line() -> None:
    lines = [{word // CACHE_LINE for word in words} for words in (WORKERS, HOSTS, SUPERVISORS)]
    assert [a & b for a, b in ((lines[0], lines[1]), (lines[0], lines[2]), (lines[1], lines[2]))] == [set()] * 3


def test_every_phase_has_its_name() -> None:
    phases = {
        wire.PHASE_STARTING: "starting",
        wire.PHASE_READY: "idle",
        wire.PHASE_IMPORTING: "importing",
        wire.PHASE_INITIALIZING: "initializing",
    }
    assert dict(enumerate(wire.PHASE_NAMES)) == phases


def test_kinds_and_flags_of_a_record_can_be_told_apart() -> None:
    kinds = (
        wire.KIND_VALUE,
        wire.KIND_ERROR,
        wire.KIND_SKIPPED,
        wire.KIND_PAD,
        wire.KIND_READY,
        wire.KIND_INIT_ERROR,
    )
    assert len(set(kinds)) == 6
    assert all(kind & wire.KIND_MASK == kind != 0 for kind in kinds)
    flags = (wire.FLAG_BIG, wire.FLAG_OUTPUT)
    assert [flag & wire.KIND_MASK for flag in flags] == [0, 0]
    assert wire.FLAG_BIG & wire.FLAG_OUTPUT == 0


def test_the_flags_of_a_call_are_single_bits() -> None:
    assert [wire.CALL_BIG, wire.CALL_IMPORT, wire.CALL_INIT, wire.CALL_QUIT] == [1, 2, 4, 8]


def test_sizes_on_the_wire_are_what_both_sides_were_built_for() -> None:
    sizes = [s.size for s in (wire.CALL, wire.MODULE, wire.RECORD, wire.OUTPUT, wire.LENGTH)]
    assert sizes == [32, 2, 64, 24, 4]


def test_headers_carry_the_largest_values_that_are_allowed() -> None:
    largest = (INLINE_MAX, 15, wire.NEVER, wire.NEVER, wire.NEVER)
    assert wire.CALL.unpack(wire.CALL.pack(*largest)) == largest
    assert wire.LENGTH.unpack(wire.LENGTH.pack(CONTROL_FRAME_MAX)) == (CONTROL_FRAME_MAX,)
    assert UNTRUSTED_RESULT_MAX < 2**32


def test_a_ring_holds_several_of_the_largest_inline_records() -> None:
    assert RING_SIZE % wire.PAGE == 0
    assert wire.RECORD.size + wire.padded(INLINE_MAX) <= RING_SIZE // 3


def test_sizes_are_rounded_up_to_eight() -> None:
    assert [wire.padded(size) for size in (0, 1, 7, 8, 9, 64 * 1024)] == [0, 8, 8, 8, 16, 64 * 1024]


@FAST
@given(st.integers(0, 2**40))
def test_a_padded_size_is_the_least_multiple_of_eight_that_holds_it(size: int) -> None:
    padded = wire.padded(size)
    assert (padded % 8, 0 <= padded - size < 8) == (0, True)


def test_a_record_that_just_fits_before_the_end_needs_no_padding() -> None:
    assert [wire.contiguous(at, 64, 256) for at in (0, 192, 200, 256, 448, 456)] == [0, 0, 56, 0, 0, 56]


@FAST
@given(st.data())
def test_no_record_wraps_and_no_padding_is_more_than_is_needed(data: st.DataObject) -> None:
    capacity = 8 * data.draw(st.integers(8, 4096))
    size = 8 * data.draw(st.integers(1, capacity // 8))
    position = 8 * data.draw(st.integers(0, 2**40))
    padding = wire.contiguous(position, size, capacity)
    start = (position + padding) % capacity
    assert start + size <= capacity
    assert padding % 8 == 0
    assert padding == 0 or (start == 0 and (position % capacity) + size > capacity)


@dataclass
class Ring:
    """A ring as the worker writes it and as the host reads it, without processes: the rules of the layout alone."""

    capacity: int
    data: bytearray = field(init=False)
    head: int = 0
    tail: int = 0

    def __post_init__(self) -> None:
        self.data = bytearray(self.capacity)

    def write(self, number: int, value: bytes) -> bool:
        """Commit a record; False if it does not fit now."""
        size = wire.RECORD.size + wire.padded(len(value))
        padding = wire.contiguous(self.head, size, self.capacity)
        if padding + size > self.capacity - (self.head - self.tail):
            return False
        if padding >= wire.RECORD.size:
            wire.RECORD.pack_into(self.data, self.head % self.capacity, wire.KIND_PAD, 0, 0, 0, 0, 0, 0, 0, padding)
        at = (self.head + padding) % self.capacity
        wire.RECORD.pack_into(self.data, at, wire.KIND_VALUE, len(value), number, 0, 0, 0, 0, 0, len(value))
        self.data[at + wire.RECORD.size : at + wire.RECORD.size + len(value)] = value
        self.head += padding + size
        return True

    def read(self) -> list[tuple[int, bytes]]:
        """Take all records."""
        taken = []
        while self.tail < self.head:
            at = self.tail % self.capacity
            if self.capacity - at < wire.RECORD.size:  # too little room for a header: nothing was written there
                self.tail += self.capacity - at
                continue
            kind, inline, number, *_, size = wire.RECORD.unpack_from(self.data, at)
            if kind == wire.KIND_PAD:
                self.tail += size
                continue
            body = at + wire.RECORD.size
            taken.append((number, bytes(self.data[body : body + inline])))
            self.tail += wire.RECORD.size + wire.padded(inline)
        return taken


@FAST
@given(st.integers(16, 64), st.lists(st.one_of(st.none(), st.integers(0, 200)), max_size=80))
def test_what_goes_through_a_ring_comes_out_whole_and_in_order(words: int, steps: list[int | None]) -> None:
    ring = Ring(words * 8)
    written: list[tuple[int, bytes]] = []
    read: list[tuple[int, bytes]] = []
    for number, size in enumerate(steps):
        if size is None:
            read += ring.read()
        elif ring.write(number, value := bytes([number % 251 + 1]) * size):
            written.append((number, value))
        assert 0 <= ring.head - ring.tail <= ring.capacity
    read += ring.read()
    assert read == written
    assert ring.tail == ring.head
