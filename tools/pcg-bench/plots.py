"""Plots of wall against busy time, one PNG file a model."""

import os


def write(rows, folder):
    """Returns a sentence on what was written."""
    try:
        import matplotlib
    except ImportError:
        return "no plots: matplotlib is not installed"
    matplotlib.use("Agg")
    from matplotlib import pyplot
    os.makedirs(folder, exist_ok=True)
    models = {}
    for row in rows:
        if row["status"] == "measured":
            models.setdefault(row["model"], []).append(row)
    for model, found in models.items():
        figure, axes = pyplot.subplots(figsize=(8, 0.45 * len(found) + 1.2))
        names = [row["entry"] for row in found]
        walls = [row["latency_us"] for row in found]
        medians = [wall["median"] for wall in walls]
        spread = [[w["median"] - w["lower"] for w in walls],
                  [w["upper"] - w["median"] for w in walls]]
        axes.barh(names, medians, xerr=spread, color="lightsteelblue",
                  label="wall")
        axes.barh(names, [row.get("busy_us") or 0 for row in found],
                  height=0.4, color="darkslateblue", label="GPU busy")
        axes.invert_yaxis()
        axes.set_xlabel("microseconds a call")
        axes.set_title(model)
        axes.legend()
        figure.tight_layout()
        figure.savefig(os.path.join(folder, f"{model}.png"))
        pyplot.close(figure)
    return f"{len(models)} plots in {folder}"
