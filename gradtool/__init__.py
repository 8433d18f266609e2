"""gradtool: the gradient compiler for ONNX files."""
