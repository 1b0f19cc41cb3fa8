"""Tries tools/pcg-bench on small workloads: figures, verdicts, exit codes.

    pcg_bench_test.py --library build/lib/libpcg.so
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest

import torch

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PROGRAM = os.path.join(ROOT, "tools", "pcg-bench", "pcg_bench.py")
sys.path.insert(0, os.path.dirname(PROGRAM))
import measure  # noqa: E402
import workloads  # noqa: E402

library = None


def run(*arguments):
    environment = dict(os.environ, PCG_BACKEND="host", PCG_LOG="off")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", PROGRAM, "--library", library,
         "--device", "cpu", *arguments],
        capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout, done.stderr


class PcgBench(unittest.TestCase):

    def test_each_row_has_what_the_page_promises(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            code, text, errors = run(
                "--tiny", "--repetitions", "3", "--seconds", "1",
                "--workloads", "overhead,gated_mlp_8,gpt2_decode,early_exit,"
                "lstm_loop,potential_64,resnet50_fp16", "--json", path)
            self.assertEqual(code, 0, text + errors)
            with open(path) as file:
                result = json.load(file)
        rows = {(r["workload"], r["entry"]): r for r in result["rows"]}
        for name in ("overhead", "gated_mlp_8", "gpt2_decode", "early_exit",
                     "lstm_loop", "potential_64"):
            row = rows[name, "pcg"]
            self.assertEqual(row["status"], "ok", row)
            self.assertGreater(row["replays"], 0, row)
            self.assertGreaterEqual(row["segments"], 1)
            self.assertLessEqual(row["wall_us"]["low"],
                                 row["wall_us"]["median"])
            self.assertGreater(row["first_us"], 0)
            self.assertIn(name, text)
            self.assertEqual(rows[name, "whole-graph"]["status"], "left out")
        self.assertGreaterEqual(rows["gated_mlp_8", "pcg"]["breaks"], 1)
        self.assertIn("half precision", rows["resnet50_fp16", "all"]["reason"])

    def test_a_users_file_is_run_on_random_inputs(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.pt")
            torch.jit.script(workloads.Overhead()).save(path)
            code, text, errors = run(path, "--input", "f32[2,3]",
                                     "--repetitions", "3")
        self.assertEqual(code, 0, text + errors)
        self.assertIn("no eager form", text)
        self.assertRegex(text, r"\n  pcg +\d")

    def test_wrong_usage_is_explained_with_exit_code_2(self):
        for arguments, part in ((["--workloads", "nonsense"], "overhead"),
                                (["--entries", "nonsense"], "torchscript"),
                                (["model.pt"], "--input"),
                                (["m.pt", "--input", "q8[1]"], "f32[1,3"),
                                (["--repetitions", "1"], "at least 3"),
                                (["--seconds", "0"], "more than 0")):
            code, _, errors = run(*arguments)
            self.assertEqual(code, 2, arguments)
            self.assertIn(part, errors)

    def test_workloads_beyond_the_budget_are_named(self):
        code, text, _ = run("--tiny", "--workloads", "overhead,lstm_loop",
                            "--repetitions", "3", "--budget", "0.000001")
        self.assertEqual(code, 0)
        self.assertEqual(text.count("the budget is spent"), 2)

    def test_a_difference_is_found_and_measured(self):
        one = torch.ones(3)
        self.assertEqual(measure.difference([one], [one.clone()]), 0)
        self.assertEqual(measure.difference([one], [one + 1]), 1)
        self.assertEqual(measure.difference([one], [one, one]), float("inf"))
        self.assertEqual(measure.difference(one, one * float("nan")),
                         float("inf"))

    def test_warming_up_ends_once_calls_get_no_faster(self):
        _, steady = measure.warm_up(lambda: None, lambda i: (), "cpu", 400)
        self.assertLess(steady, 395)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    known, rest = parser.parse_known_args()
    library = os.path.abspath(known.library)
    unittest.main(argv=[sys.argv[0], *rest])
