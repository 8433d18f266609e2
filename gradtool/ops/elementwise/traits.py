"""Traits of the operators of the elementwise family."""

from gradtool.ops.traits import traits

traits("Abs", residuals="X")
traits("Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Log Sin Sinh", residuals="input")
traits("Add Identity Mean Neg Sub Sum", residuals="")
traits("CastLike", residuals="", unread=1, onnxruntime="body")
traits("Clip", residuals="input, max, min")
traits("Div", residuals="B, C")
traits("Exp Tan Tanh", residuals="output")
traits("Max", residuals="data_0, max")
traits("Min", residuals="data_0, min")
traits("Mod", residuals="A, B, C")
traits("Mul", residuals="A, B")
traits("Pow", residuals="X, Y, Z")
traits("Reciprocal Sqrt", residuals="Y")
traits("Where", residuals="condition")
