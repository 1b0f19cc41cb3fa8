#!/usr/bin/env python3
"""Streams synthesised speech through silero-vad, original and partitioned.

    demo_silero.py --original silero_vad.jit --partitioned silero_vad_pcg.pt
                   --library build/lib/libpcg.so

Chunk by chunk, as a voice assistant would: the model keeps its state between
calls, and is reset in the middle. Fails if the probabilities disagree.
"""

import math
import sys

import demo_common as demo
import torch

SAMPLE_RATE = 16000
CHUNK = 512


def synthesise(seconds, seed=1):
    """Speech-like sound: voiced syllables with moving formants, hissing
    consonants, pauses between phrases, and some noise. The same every time."""
    random = torch.Generator().manual_seed(seed)

    def uniform(low, high):
        return low + (high - low) * torch.rand((), generator=random).item()

    # First three formants of a few vowels, in Hz.
    vowels = [(730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240),
              (530, 1840, 2480), (570, 840, 2410), (440, 1020, 2240)]
    total = int(seconds * SAMPLE_RATE)
    audio = torch.zeros(total)
    position = 0
    while position < total:
        position += int(uniform(0.6, 1.6) * SAMPLE_RATE)  # a pause
        pitch = uniform(95, 210)
        for _ in range(int(uniform(5, 14))):  # a phrase
            length = int(uniform(0.14, 0.28) * SAMPLE_RATE)
            if position + length >= total:
                position = total
                break
            t = torch.linspace(0, 1, length)
            envelope = torch.sin(math.pi * t).clamp(min=0) ** 0.5
            pitch *= uniform(0.94, 1.04)
            f0 = pitch * (1 + 0.06 * torch.sin(2 * math.pi * t * 1.5))
            phase = 2 * math.pi * torch.cumsum(f0, 0) / SAMPLE_RATE
            begin = vowels[int(uniform(0, len(vowels)))]
            end = vowels[int(uniform(0, len(vowels)))]
            voice = torch.zeros(length)
            for harmonic in range(1, int(3800 / pitch)):
                frequency = harmonic * f0
                gain = torch.zeros(length)
                for k, bandwidth in enumerate((90.0, 110.0, 170.0)):
                    centre = begin[k] + (end[k] - begin[k]) * t
                    distance = (frequency - centre) / bandwidth
                    gain += 0.6**k / (1 + distance**2)
                voice += gain / harmonic**0.4 * torch.sin(harmonic * phase)
            voice *= envelope * 0.16
            onset = int(uniform(0.02, 0.06) * SAMPLE_RATE)
            hiss = torch.randn(onset, generator=random)
            hiss = hiss - torch.roll(hiss, 1)  # consonants are bright
            voice[:onset] += 0.03 * hiss * torch.hann_window(onset)
            audio[position:position + length] += voice
            position += length
    audio += 0.002 * torch.randn(total, generator=random)
    return audio.clamp(-1, 1)


def main():
    parser = demo.parser(__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    device = demo.prepare(args)

    audio = synthesise(args.seconds).to(device)
    chunks = audio[:len(audio) // CHUNK * CHUNK].view(-1, 1, CHUNK)
    print(f"{args.seconds:g} s of synthesised audio, {len(chunks)} chunks")

    # TorchScript's fuser generates kernels of its own, which round
    # differently. Agreement is with the operators as the model names them;
    # the times below are against TorchScript with its fuser.
    fuser = torch._C._jit_texpr_fuser_enabled()
    torch._C._jit_set_texpr_fuser_enabled(False)
    original = demo.load(args.original, device)
    partitioned = demo.load(args.partitioned, device)
    agreement = demo.Agreement("probabilities", args.tolerance)
    speech = 0
    for i, chunk in enumerate(chunks):
        if i == len(chunks) // 2:
            original.reset_states()
            partitioned.reset_states()
        expected = original(chunk, SAMPLE_RATE)
        actual = partitioned(chunk, SAMPLE_RATE)
        agreement.add(expected, actual)
        speech += int(expected.item() > 0.5)
    torch._C._jit_set_texpr_fuser_enabled(fuser)
    agreement.show()
    print(f"the model hears speech in {speech} of {len(chunks)} chunks; its "
          f"state was reset after {len(chunks) // 2}")
    replays = demo.show_statistics(partitioned)

    if device == "cuda":
        fused = demo.load(args.original, device)

        def run(module):
            return lambda i: module(chunks[i % len(chunks)], SAMPLE_RATE)

        calls = {"TorchScript": run(fused), "pcg": run(partitioned)}
        for call in calls.values():
            for i in range(50):
                call(i)
        times = demo.median_times(calls, repetitions=8, per_repetition=200)
        demo.show_times("chunk", times, "TorchScript")

    if not agreement.holds():
        return 1
    if not replays:
        print("nothing was replayed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
