"""Record any block of code, keep the recording, and print what it says."""

import tempfile
from pathlib import Path

import torch

import stridewise

images = torch.randn(8, 64, 64, 16).permute(0, 3, 1, 2)  # as image libraries hand them over: channels innermost
network = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3), torch.nn.InstanceNorm2d(32), torch.nn.Conv2d(32, 32, 3))

with stridewise.record() as recording:
    network(images).square().mean().backward()

report = stridewise.analyze(recording)
print(report)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "step.json.gz"
    recording.save(path)  # an ordinary profiler trace: it opens in Perfetto, too
    assert stridewise.analyze(path).totals == report.totals
