"""Ask what layout costs a model: one call. Its gradients, buffers and random state are as before afterwards."""

import torch

import stridewise

model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
images = torch.randn(4, 3, 64, 64)

print("row-major:", stridewise.diagnose(model, images, train=True).totals.copies, "copies a step")

model = model.to(memory_format=torch.channels_last)
print("only the model is channels_last:")
print(stridewise.diagnose(model, images, train=True))

images = images.to(memory_format=torch.channels_last)
print("both are:")
print(stridewise.diagnose(model, images, train=True))

print(stridewise.explain(images))
