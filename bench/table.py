"""The printed tables."""

from collections.abc import Mapping, Sequence

from bench.contest import OURS, Contest, Metric, Reached, ratio


def shown(value: float | None, unit: str) -> str:
    """Return a number with its unit: seconds under ten as ms or µs, rates without decimals."""
    if value is None:
        return "-"
    if unit == "s":
        if abs(value) >= 10.0:
            return f"{value:.1f} s"
        return f"{value * 1e3:.2f} ms" if abs(value) >= 1e-3 else f"{value * 1e6:.0f} µs"
    return f"{value:,.0f} {unit}".rstrip() if unit else f"{value:g}"


def table(contest: Contest, numbers: Mapping[str, Mapping[str, float]], missing: Mapping[str, str]) -> str:
    """Return a contest's table: a line for each metric, a column for each contestant, ratios below the others'."""
    present = [who for who in contest.contestants if who in numbers]
    lines = [["", *present]]
    for metric in contest.metrics:
        if not any(metric.name in numbers[who] for who in present):
            continue
        lines.append([metric.label, *(_cell(metric, who, numbers) for who in present)])
    text = f"{contest.name}: {contest.title}\n{columns(lines) if present else ''}"
    return text + "".join(f"  {who}: {why}\n" for who, why in missing.items())


def _cell(metric: Metric, who: str, numbers: Mapping[str, Mapping[str, float]]) -> str:
    value = numbers[who].get(metric.name)
    times = None if who == OURS else ratio(metric, numbers.get(OURS, {}).get(metric.name), value)
    return shown(value, metric.unit) + ("" if times is None else f" ({times:,.2f}x)")


def goals(contest: Contest, reached: Sequence[Reached]) -> str:
    """Return a line for each goal."""
    labels = {metric.name: metric for metric in contest.metrics}
    lines = []
    for one in reached:
        metric = labels[one.goal.metric]
        word = "at least" if one.goal.at_least else "at most"
        base = f" = {one.goal.bound:g} of {one.goal.of}" if one.goal.of else ""
        bound = f"{word} {shown(one.bound, metric.unit)}{base}"
        who = "" if one.goal.contestant == OURS else f" {one.goal.contestant}"
        name = f"{contest.name}{who}, {metric.label}"
        lines.append([name, shown(one.value, metric.unit), bound, "met" if one.is_met else "MISSED"])
    return columns(lines)


def columns(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells with their columns aligned, the first to the left."""
    if not lines:
        return ""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ""
    for line in lines:
        rest = "".join(f"  {cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True))
        text += f"  {line[0]:<{widths[0]}}{rest}".rstrip() + "\n"
    return text
