"""Cases of the text family."""

from __future__ import annotations

import numpy as np
from cases import case, integers


def words(*values):
    return np.array(values, dtype=object)


plain = {"gradient": False}
case("StringConcat", words("ab", "c", ""), words("x", "ü", "z"), **plain)
case("StringConcat", words(["ab"], ["c"]), words("x", "y"), **plain)
case("StringSplit", words("a bb  c", "", "d,e,f"), **plain, outputs=2)
case("StringSplit", words("a b", ",", "d,e,f"), **plain, outputs=2, delimiter=",", maxsplit=1)
case("RegexFullMatch", words("a@b.org", "no", ""), **plain, pattern=r"[a-z]+@[a-z.]+")
# onnxruntime asks the machine for the locale en_US, which it may not have.
days = words("monday", "Tuesday", "wednesday", "monday")
case("StringNormalizer", days, **plain, ort=False, opset=18)
for change in ("LOWER", "UPPER", "NONE"):
    for sensitive in (0, 1):
        case(
            "StringNormalizer", days, **plain, ort=False, case_change_action=change,
            is_case_sensitive=sensitive, stopwords=["tuesday", "monday"],
        )  # fmt: skip
pool = {"ngram_counts": [0, 4], "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]}  # fmt: skip
for mode in ("TF", "IDF", "TFIDF"):
    for skips in (0, 5):
        case(
            "TfIdfVectorizer", integers([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]]), **plain,
            mode=mode, min_gram_length=1, max_gram_length=2, max_skip_count=skips, **pool,
            weights=[2.0, 3.0, 0.5, 1.0, 1.5, 2.5, 4.0],
        )  # fmt: skip
