"""Facts about an onnx-ir graph for every room."""
