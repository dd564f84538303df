"""What the GPU runners gained and the NPU runners lack: hunks, their rank, their place, their ledger."""
