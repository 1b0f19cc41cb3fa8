"""The printed table."""

COLUMNS = ("entry", "wall us", "quartiles", "b2b us", "kernels", "busy us",
           "reads", "segments", "peak MB", "first s", "steady s", "result")


def number(value, form="{:.1f}"):
    return "-" if value is None else form.format(value)


def cells(row):
    wall = row["latency_us"]
    peak = row.get("peak_memory_bytes")
    same = row["result"]
    return (row["entry"], number(wall["median"]),
            f"{wall['lower']:.1f}-{wall['upper']:.1f}",
            number(row["throughput_us"]["median"]),
            number(row.get("kernels"), "{:.0f}"), number(row.get("busy_us")),
            number(row.get("host_reads"), "{:.1f}"),
            number(row.get("pcg", {}).get("segments"), "{}"),
            number(peak / 1e6 if peak is not None else None),
            number(row["first_result_s"], "{:.2f}"),
            number(row["steady_s"], "{:.2f}"),
            "equal" if same["identical"]
            else f"{same['largest_difference']:.1e}")


def verdict(rows):
    """How pcg stands against the best of the others, in one line."""
    wall = {row["entry"]: row["latency_us"]["median"] for row in rows}
    # A bare launch takes no inputs: it is a limit and no competitor.
    others = {entry: value for entry, value in wall.items()
              if entry not in ("pcg", "graph_launch")}
    if "pcg" not in wall or not others:
        return ""
    best = min(others, key=others.get)
    return (f"  pcg takes {wall['pcg'] / others[best]:.2f} of the time of the "
            f"best other entry, {best}")


def show(rows):
    """Prints all rows of one model."""
    measured = [row for row in rows if row["status"] == "measured"]
    floor = next((row["floor_us"] for row in measured if row["floor_us"]),
                 None)
    print(f"\n{rows[0]['model']}" + (
        f" (scheduling floor of its graph {floor:.1f} us)" if floor else ""))
    lines = [COLUMNS] + [cells(row) for row in measured]
    widths = [max(len(line[i]) for line in lines)
              for i in range(len(COLUMNS))]
    if measured:
        for line in lines:
            print("  " + "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths))))
        print(verdict(measured), end="\n" if verdict(measured) else "")
    for row in rows:
        if row["status"] != "measured":
            print(f"  {row['entry']}: {row['status']}: {row['reason']}")
