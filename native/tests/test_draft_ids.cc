// Rows of a part of the vocabulary: the token is the one that the whole row gives when all others are impossible.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/draft_ids.h"
#include "cpu/sample.h"
#include "tests/check.h"
#include "tests/sample_cases.h"
#include "tests/sample_teams.h"

using namespace pj;

namespace {

void check_numbers() {
    const int32_t blocks[] = {9, 4, 5};
    const DraftIds ids{200, blocks, 3};
    CHECK(ids.n_logits(1000) == 392, "length");
    CHECK(ids.id_of(0) == 0 && ids.id_of(199) == 199, "low ids");
    CHECK(ids.id_of(200) == 576 && ids.id_of(263) == 639 && ids.id_of(264) == 256 && ids.id_of(391) == 383, "blocks");
    for (int i = 0; i < 392; ++i) CHECK(ids.index_of(ids.id_of(i)) == i, "logit %d", i);
    for (int token : {200, 255, 384, 575, 640, 999}) CHECK(ids.index_of(token) == -1, "token %d", token);
}

// n of the blocks from n_low on, the last of the vocabulary among them, in any order.
std::vector<int32_t> random_blocks(int n_vocab, int n_low, int n) {
    const int first = (n_low + PJ_DRAFT_BLOCK - 1) / PJ_DRAFT_BLOCK, last = (n_vocab - 1) / PJ_DRAFT_BLOCK;
    std::vector<int32_t> blocks(std::max(0, last + 1 - first));
    std::iota(blocks.begin(), blocks.end(), first);
    std::shuffle(blocks.begin(), blocks.end(), random_bits());
    std::partition(blocks.begin(), blocks.end(), [&](int block) { return block == last; });
    blocks.resize(std::min<size_t>(n, blocks.size()));
    std::shuffle(blocks.begin(), blocks.end(), random_bits());
    return blocks;
}

// The row with nothing else in it, and the row of the ids alone, which has anything where the vocabulary ends.
void split(const Case &c, const DraftIds &ids, std::vector<float> &whole, std::vector<float> &part) {
    whole.assign(c.logits.size(), -kInf);
    for (int i = 0; i < ids.n_logits(c.n_vocab()); ++i) {
        const int id = ids.id_of(i);
        const bool is_missing = id >= c.n_vocab();
        if (!is_missing) whole[id] = c.logits[id];
        part.push_back(is_missing ? (i % 2 ? kInf : 100.0f) : c.logits[id]);
    }
}

void check_row(const Case &c, const DraftIds &ids, bool with_threads) {
    std::vector<float> whole, part;
    split(c, ids, whole, part);
    const std::vector<float> before = part;
    // A top_k that the part is too short for cuts nothing. Of the whole row it might, for all that is known.
    Case same = c;
    if (c.sample.top_k >= ids.n_logits(c.n_vocab())) same.sample.top_k = 0;
    const int expected = cpu::sample(whole.data(), c.n_vocab(), same.row());
    const int token = cpu::sample(part.data(), c.n_vocab(), c.row(), ids);
    CHECK(token == expected, "%d low of %d, %d blocks: token %d, expected %d", ids.n_low, c.n_vocab(), ids.n_blocks,
          token, expected);
    if (with_threads) {
        static SampleScratch scratch;
        SampleRow row = c.row();
        std::vector<float> places(row.n_counts + row.n_biases);
        row.before = places.data();
        const int other = sample_by_threads(4, scratch, part.data(), c.n_vocab(), row, ids);
        CHECK(other == token, "one thread chooses %d, four %d", token, other);
    }
    for (size_t i = 0; i < part.size(); ++i) {
        const bool is_missing = ids.id_of(static_cast<int>(i)) >= c.n_vocab();
        CHECK(part[i] == (is_missing ? -kInf : before[i]), "logit %zu has changed", i);
    }
}

void check_rows() {
    int n_drawn[2] = {};
    for (int i = 0; i < 600; ++i) {
        const int n_vocab = any_of({70, 1000, 2500, 7424});
        Case c = random_case(n_vocab, i % 3 ? 0 : 64);
        c.mask.clear();                                         // rows of drafts have none
        if (i % 5 == 0) c.sample.top_k = any_of({1500, 3000});  // more than is looked at
        const int n_low = any_of({1, 64, n_vocab / 4, n_vocab});
        const std::vector<int32_t> blocks = random_blocks(n_vocab, n_low, any_of({0, 1, 7, PJ_MAX_DRAFT_BLOCKS}));
        const DraftIds ids{n_low, blocks.data(), static_cast<int>(blocks.size())};
        check_row(c, ids, i % 8 == 0);
        const int token = cpu::sample(std::vector<float>(c.logits).data(), n_vocab, c.row());
        if (token >= 0) ++n_drawn[ids.index_of(token) >= 0];
    }
    CHECK(n_drawn[0] > 50 && n_drawn[1] > 50, "whole rows prefer %d tokens outside, %d inside", n_drawn[0], n_drawn[1]);
}

// Equals are ordered by token, not by place.
void check_equals() {
    const int32_t blocks[] = {9, 4};
    Case c;
    c.logits.assign(1000, 0.0f);
    c.sample = {5, 1.0, 0.0, 0.0f, 1.0f, 0.0f, 0.0f, 0, 0, 0, 0, 0, 0, 0, 0};
    c.logits[256 + 3] = c.logits[576 + 1] = 1.0f;
    std::vector<float> whole, part;
    const DraftIds ids{64, blocks, 2};
    split(c, ids, whole, part);
    CHECK(cpu::sample(part.data(), 1000, c.row(), ids) == 256 + 3, "the lowest id, which comes last");
}

}  // namespace

int main() {
    check_numbers();
    check_rows();
    check_equals();
    return check_result();
}
