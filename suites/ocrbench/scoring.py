"""The official rule of OCRBench (Yuliang-Liu/MultimodalOCR, OCRBench/example.py of the paper's repository): a gold
answer is in the prediction.

The official scripts key the rule on the source data set (HME100k), KVV on the question type; on the public set both
name the same hundred rows.
"""

from __future__ import annotations

from collections.abc import Sequence

#: the source data set whose answers are LaTeX, and the question type that its rows have
FORMULA_DATASET = "hme100k"
FORMULA_TYPE = "Handwritten Mathematical Expression Recognition"


def is_formula(dataset: str, question_type: str) -> bool:
    return dataset.strip().lower() == FORMULA_DATASET or question_type == FORMULA_TYPE


def normalise(text: str, *, formula: bool) -> str:
    """What is compared: formulas without any space and with their case, other texts in lower case on one line."""
    if formula:
        return text.strip().replace("\n", " ").replace(" ", "")
    return text.lower().strip().replace("\n", " ")


def matching(prediction: str, answers: Sequence[str], *, formula: bool) -> str | None:
    """The first gold alternative that stands in the prediction, None for a miss. An alternative without any character
    never counts.
    """
    text = normalise(prediction, formula=formula)
    for answer in answers:
        wanted = normalise(answer, formula=formula)
        if wanted and wanted in text:
            return answer
    return None
