"""All contests, in the order in which they are run."""

from bench import calls, fresh, humaneval, idle, imports, kills
from bench.contest import Contest

ALL: tuple[Contest, ...] = (
    calls.CALLS,
    kills.KILL,
    kills.EIGHT,
    kills.AFTER,
    fresh.FRESH,
    idle.IDLE,
    humaneval.HUMANEVAL,
    imports.IMPORT,
)
BY_NAME = {contest.name: contest for contest in ALL}
