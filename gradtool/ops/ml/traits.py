"""Traits of the operators of the ml family."""

from gradtool.ops.traits import traits

traits("ai.onnx.ml::ArrayFeatureExtractor", residuals="Y", partial=True)
traits("ai.onnx.ml::FeatureVectorizer ai.onnx.ml::Scaler", residuals="")
traits("ai.onnx.ml::Imputer ai.onnx.ml::SVMRegressor", residuals="X")
traits("ai.onnx.ml::LinearClassifier", residuals="Z")
traits("ai.onnx.ml::LinearRegressor", residuals="Y")
traits("ai.onnx.ml::Normalizer", residuals="X, Y")
traits("ai.onnx.ml::TreeEnsemble", uncounted="rows take paths of different lengths")
