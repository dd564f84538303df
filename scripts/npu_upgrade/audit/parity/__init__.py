"""What the GPU side does and the NPU side does not: what the parity checks share."""
