"""Runs pcg-bench on the CPU, on small sizes, and holds it to its documents.

    python pcg_bench_test.py --library build/lib/libpcg.so
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
LIBRARY = ""
MODELS = ["quick_start", "gated_mlp_1", "lstm_loop", "silero_vad",
          "potential_64", "gpt2_decode"]
ON_CPU = ["eager", "torchscript", "torchscript_no_nnc", "torchscript_frozen",
          "pcg"]


class Scale(torch.nn.Module):

    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return (x * n).relu().exp().sin() + 1.0


def run(*arguments, library=None):
    return subprocess.run(
        [sys.executable, "-W", "ignore",
         os.path.join(ROOT, "tools", "pcg-bench", "pcg-bench"),
         "--library", library or LIBRARY, "--device", "cpu", *arguments],
        capture_output=True, text=True, timeout=600)


class PcgBenchTest(unittest.TestCase):

    def rows(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bench.json")
            done = run("--tiny", "--repetitions", "3", "--seconds", "0.05",
                       "--json", path, *arguments)
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            with open(path) as file:
                return json.load(file)["rows"], done.stdout

    def check_measured(self, row):
        for times in (row["latency_us"], row["throughput_us"]):
            self.assertGreater(times["lower"], 0)
            self.assertLessEqual(times["lower"], times["median"])
            self.assertLessEqual(times["median"], times["upper"])
            self.assertGreaterEqual(times["samples"], 1)
        self.assertGreater(row["first_result_s"], 0)
        self.assertGreaterEqual(row["steady_s"], row["first_result_s"])
        self.assertIsNone(row["floor_us"])
        self.assertNotIn("kernels", row)

    def test_each_model_has_a_row_for_each_entry(self):
        rows, printed = self.rows("--suite", ",".join(MODELS))
        entries = {row["entry"] for row in rows}
        self.assertEqual(len(rows), len(MODELS) * len(entries))
        for row in rows:
            name = f"{row['model']}, {row['entry']}: {row['reason']}"
            with self.subTest(name):
                self.assertIn(row["model"], printed)
                if row["model"] == "silero_vad":
                    self.assertEqual("left out", row["status"])
                    self.assertIn("--silero", row["reason"])
                elif row["entry"] in ON_CPU:
                    self.assertEqual("measured", row["status"], name)
                    self.check_measured(row)
                else:
                    self.assertEqual("left out", row["status"])
                    self.assertNotEqual("", row["reason"])
        for row in rows:
            if row["entry"] == "pcg" and row["status"] == "measured":
                with self.subTest(row["model"]):
                    self.assertTrue(row["result"]["identical"])
                    if row["model"] != "quick_start":  # Too small a segment.
                        self.assertGreater(row["pcg"]["replays_per_call"], 0)

    def test_a_file_is_measured_with_its_inputs(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "scale.pt")
            torch.jit.script(Scale()).save(path)
            rows, _ = self.rows(path, "--input", "f32[4,8]", "--input", "3",
                                "--entries", "eager,torchscript,pcg")
        status = {row["entry"]: row["status"] for row in rows}
        self.assertEqual({"eager": "left out", "torchscript": "measured",
                          "pcg": "measured"}, status)

    def test_a_budget_that_is_spent_is_said(self):
        rows, _ = self.rows("--suite", "empty", "--budget", "1")
        self.assertEqual({"left out"}, {row["status"] for row in rows})
        self.assertIn("budget", rows[0]["reason"])

    def test_bad_arguments_are_refused(self):
        for code, words, arguments in [
                (2, "unknown name 'nosuch'", ["--suite", "nosuch"]),
                (2, "unknown name 'nosuch'", ["--entries", "nosuch"]),
                (2, "--input", ["--input", "3"]),
                (2, "above 0", ["--budget", "0"]),
                (1, "no such file", ["nosuch.pt", "--input", "3"]),
                (1, "no GPU", ["--device", "cuda"])]:
            if "cuda" in arguments and torch.cuda.is_available():
                continue
            with self.subTest(words):
                done = run(*arguments)
                self.assertEqual(code, done.returncode, done.stderr)
                self.assertIn(words, done.stderr)

    def test_a_bad_input_is_named_by_its_column(self):
        with tempfile.NamedTemporaryFile(suffix=".pt") as file:
            done = run(file.name, "--input", "f33[2]")
        self.assertEqual(2, done.returncode)
        self.assertIn("column 1: unknown element type 'f33'", done.stderr)

    def test_a_library_that_is_none_is_bad_input(self):
        done = run(library=os.path.abspath(__file__))
        self.assertEqual(1, done.returncode)
        self.assertIn("pcg-bench: error:", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    known, rest = parser.parse_known_args()
    LIBRARY = os.path.abspath(known.library)
    unittest.main(argv=[sys.argv[0], *rest])
