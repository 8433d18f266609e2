"""Facts about an onnx-ir graph that every room may ask for."""
