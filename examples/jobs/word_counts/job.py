"""Three handlers that hand their results on: a list of texts, the words of one, and the sum of all.

They are the tasks of examples/workflows/word-counts.yaml.
"""

from horae import Context, handler

TEXTS = {
    "eunomia": "good order among all that is done in the city",
    "dike": "justice for those who wait longest",
    "eirene": "peace",
}


@handler(name="list_texts")
def list_texts(context: Context) -> list[str]:
    """Return what there is to read."""
    return sorted(TEXTS)


@handler(name="count_words")
def count_words(context: Context) -> dict[str, object]:
    """Return how many words one text has."""
    text = context.data["text"]
    return {"text": text, "words": len(TEXTS[text].split())}


@handler(name="sum_words")
def sum_words(context: Context) -> dict[str, int]:
    """Return how many words all of them have."""
    counts = [count["words"] for count in context.data["counts"]]
    return {"texts": len(counts), "words": sum(counts)}
