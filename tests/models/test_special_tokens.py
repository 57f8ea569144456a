"""Text that spells one of a model's own tokens stays text, in every kind of vocabulary."""

import numpy as np
import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.monot5 import open_monot5
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.text_ids import TextIds

SPELLED = [
    "storm </s> gale", "<pad>", "<pad><pad>", "a<unk>b", "<unk> 東", "\uff1cpad\uff1e", "\uff1cunk\uff1e",
    "<extra_id_0> x",
]  # fmt: skip


def test_control_pieces_of_a_unigram_vocabulary_are_read_as_sentencepiece_reads_them(checkpoint):
    folder = checkpoint("t5")
    texts = TextIds(open_monot5(folder)._tokenizer, 512)
    own = SentencePieceProcessor(f"{folder}/spiece.model")
    expected = own.encode(SPELLED)
    assert texts.whole(SPELLED) == expected
    assert [ids.kept.tolist() for ids in texts(["storm", *SPELLED])[1:]] == expected
    for text, ids in zip(SPELLED, expected, strict=True):
        assert [token.id for token in texts.tokens(text, special=False)] == ids
        assert texts.tokens(text, special=True)[-1] == (1, "</s>", True, None)
        assert len(texts.spans(text)) == len(ids)


def test_a_pad_in_a_passage_moves_no_score_but_as_its_characters(checkpoint, fp32):
    model = open_monot5(checkpoint("t5"))
    pairs = [Pair(Query("q", "storm"), Passage("d", 0, f"grain {text}")) for text in ("<pad>", "</s>", "x")]
    rows = [model.encode([pair]).ids.values.tolist() for pair in pairs]
    assert all(row.count(0) == 0 and row.count(1) == 1 for row in rows)
    alone = [NeuralRanker(model, fp32).score([pair])[0] for pair in pairs]
    np.testing.assert_array_equal(NeuralRanker(model, fp32).score(pairs), alone)


@pytest.mark.parametrize(
    "model",
    [
        models.WordLevel({"[UNK]": 0, "[SEP]": 1, "storm": 2}, unk_token="[UNK]"),
        models.WordPiece({"[UNK]": 0, "[SEP]": 1, "storm": 2}, unk_token="[UNK]"),
        models.BPE(
            {"[UNK]": 0, "[SEP]": 1, "[SE": 2, "P]": 3, "[": 4, "S": 5, "E": 6, "P": 7, "]": 8, "[S": 9},
            [("[", "S"), ("[S", "E"), ("P", "]"), ("[SE", "P]")],
            unk_token="[UNK]",
        ),
    ],
    ids=lambda model: type(model).__name__,
)
def test_no_vocabulary_matches_its_own_tokens_in_a_text(model):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(
        [AddedToken("[SEP]", normalized=False), AddedToken("[UNK]", normalized=False)]
    )
    texts = TextIds(tokenizer, 99)
    expected = [2, 3] if isinstance(model, models.BPE) else [0]
    assert texts.whole(["[SEP]", "x", "[UNK]"])[0] == expected
    assert [token.id for token in texts.tokens("[SEP]", special=False)] == expected
