"""What torch.compile did to layouts: read from what the compiler logs and from the code that it generates."""
