"""A host: a framework whose retrievers are functions from a question to dictionaries."""

from rankhouse.hosts.adapters import OpenSystem


def retriever(system, index, k=10):
    """Return a function that answers questions by a system."""
    opened = OpenSystem(system, index)

    def answer(question):
        return [
            {"id": one.id, "text": one.full_text, "score": score} for one, score in opened.answer(question, k)
        ]

    return answer
