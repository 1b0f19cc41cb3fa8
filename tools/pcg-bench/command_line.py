"""The command line of pcg-bench.

Exit codes: 0 when all was measured or left out with a reason; 1 for bad input
and where pcg failed or gave a wrong result; 2 for a bad command line.
"""

import argparse
import json
import os
import sys
import time


def parser():
    result = argparse.ArgumentParser(
        prog="pcg-bench", description="Measures pcg beside its competitors.")
    result.add_argument("model", nargs="?", help="a TorchScript file")
    result.add_argument("--input", action="append", default=[],
                        metavar="VALUE", help="an argument of the file's "
                        "forward, as of pcg-run; again for each further one")
    result.add_argument("--library", required=True, help="libpcg.so")
    result.add_argument("--load", action="append", default=[], metavar="LIB",
                        help="a library of operators to load first")
    result.add_argument("--suite", default="all", metavar="NAMES",
                        help="models, separated by commas (default: all)")
    result.add_argument("--entries", default="all", metavar="NAMES",
                        help="competitors, separated by commas")
    result.add_argument("--device", choices=["auto", "cpu", "cuda"],
                        default="auto")
    result.add_argument("--tiny", action="store_true",
                        help="small sizes, to test the program itself")
    result.add_argument("--repetitions", type=positive(int), default=30)
    result.add_argument("--seconds", type=positive(float), default=1.0,
                        help="time of an entry's repetitions")
    result.add_argument("--setup-seconds", type=positive(float), default=40,
                        help="longest set-up of an entry")
    result.add_argument("--budget", type=positive(float), default=480,
                        help="seconds for everything")
    result.add_argument("--silero", default="", metavar="FILE",
                        help="silero-vad's TorchScript file")
    result.add_argument("--seed-packages", default="", metavar="DIR",
                        help="where pip install --target has put "
                        "piecewise-cuda-graphs and breakable-cuda-graphs")
    result.add_argument("--json", metavar="FILE")
    result.add_argument("--plots", metavar="DIR",
                        help="write PNG files, of wall against busy time")
    return result


def positive(kind):
    def convert(text):
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{text} is not above 0")
        return value
    convert.__name__ = "number"
    return convert


def chosen(option, text, known, error):
    """The names of a list, in the order of `known`."""
    if text == "all":
        return list(known)
    names = text.split(",")
    for name in names:
        if name not in known:
            error(f"{option}: unknown name '{name}'; expected of: "
                  + ", ".join(known))
    return [name for name in known if name in names]


def complain(message):
    print(f"pcg-bench: error: {message}", file=sys.stderr)
    return 1


def device_facts(options):
    """The device's name. CUDA is initialised in a child: no process that has
    done so can fork others that use it."""
    import torch
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        name = (torch.cuda.get_device_name() if torch.cuda.is_available()
                else "")
        os.write(writing, name.encode())
        os._exit(0)
    os.close(writing)
    name = os.read(reading, 4096).decode()
    os.close(reading)
    os.waitpid(child, 0)
    return name


def main(arguments=None):
    command = parser()
    options = command.parse_args(arguments)
    if options.input and not options.model:
        command.error("--input: only with a TorchScript file")
    if options.model and options.suite != "all":
        command.error("--suite: not with a TorchScript file")
    for path in [options.library, *options.load] + (
            [options.model] if options.model else []):
        if not os.path.isfile(path):
            return complain(f"{path}: no such file")
    # Without this, asking for a device would initialise CUDA.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import torch

    import entries
    import suite
    import table
    import worker
    options.entries = chosen("--entries", options.entries, entries.ENTRIES,
                             command.error)
    models = suite.BUILDERS
    if options.model:
        import input_spec
        try:
            specs = [input_spec.parse(text) for text in options.input]
        except input_spec.BadSpec as error:
            command.error(str(error))
        models = {os.path.basename(options.model):
                  suite.user_file(options.model, specs)}
    names = chosen("--suite", options.suite, models, command.error)

    gpu = device_facts(options)
    if options.device == "cuda" and not gpu:
        return complain("--device=cuda: torch finds no GPU")
    if options.device == "auto":
        options.device = "cuda" if gpu else "cpu"
    if options.device == "cpu":
        os.environ.setdefault("PCG_BACKEND", "host")
        print("on the CPU: the host back end stands in for CUDA graphs, which "
              "checks results and says nothing of speed")
    else:
        print(f"on {gpu}, torch {torch.__version__}")
    sys.stdout.flush()
    try:
        for path in [*options.load, options.library]:
            torch.ops.load_library(os.path.abspath(path))
        import torchvision  # noqa: F401: once, not in each child
    except OSError as error:
        return complain(suite.first_line(error))
    except (ImportError, RuntimeError):
        pass  # The models that need it say so.

    start, rows = time.monotonic(), []
    for i, name in enumerate(names):
        left = options.budget - (time.monotonic() - start)
        # What a model does not use is for those after it.
        share = min(left, max(20.0, 2 * left / (len(names) - i)))
        if left < 5:
            found = [worker.Row(entry).result(
                name, "left out", "the budget was spent before")
                for entry in options.entries]
        else:
            found = worker.run_model(name, models[name], options, share)
        table.show(found)
        sys.stdout.flush()
        rows += found
    document = {"device": gpu if options.device == "cuda" else "cpu",
                "torch": torch.__version__, "tiny": options.tiny,
                "repetitions": options.repetitions, "rows": rows}
    if options.json:
        with open(options.json, "w") as file:
            json.dump(document, file, indent=1)
    if options.plots:
        import plots
        print(plots.write(rows, options.plots))
    bad = any(row["entry"] == "pcg" and row["status"] in ("failed", "wrong")
              for row in rows)
    return 1 if bad else 0
