"""Traits of the operators of the text family."""

from gradtool.ops.traits import traits

traits("TfIdfVectorizer", uncounted="how many n-grams are found depends on the data")
