"""What the GPU side gained and the NPU side lacks: hunks, their rank and their place."""
