"""What a trained gpo can be seen to do, in numbers: particles, windows, causes, stability."""
