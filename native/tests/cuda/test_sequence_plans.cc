// Attention's items without a GPU: every row of every head meets each of its positions once, partial results have
// memory of their own, and CTAs get about the same number of positions.
#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "cuda/sequence_plans.h"
#include "tests/check.h"

using namespace pj::cuda;

namespace {

DeviceShape shape_27b() {
    DeviceShape s = {};
    s.n_head = 24;
    s.n_head_kv = 4;
    s.head_group = 6;
    s.head_dim = 256;
    s.n_gdn_head_v = 48;
    s.n_gdn_head_k = 16;
    return s;
}

// Three wide heads of four kv heads of 64, with 5 query heads each: more columns of a row than an item has.
DeviceShape shape_dense() {
    DeviceShape s = {};
    s.n_head = 60;
    s.n_head_kv = 3;
    s.head_group = 20;
    s.head_dim = 256;
    return s;
}

struct Step {
    std::vector<pj_seq> seqs;
    std::vector<int32_t> positions;
    pj_step_in in = {};

    void add(int first, int n_rows, int n_accept = 0) {
        pj_seq seq = {};
        seq.state_slot = static_cast<int>(seqs.size());
        seq.row_begin = static_cast<int>(positions.size());
        seq.n_rows = n_rows;
        seq.n_accept = n_accept;
        seq.page_begin = 1000 * seq.state_slot;
        seqs.push_back(seq);
        for (int i = 0; i < n_rows; ++i) positions.push_back(first + i);
    }
    const pj_step_in &done() {
        in.n_rows = static_cast<int>(positions.size());
        in.n_seqs = static_cast<int>(seqs.size());
        in.seqs = seqs.data();
        in.row_position = positions.data();
        return in;
    }
};

int sequence_of(const Step &step, const AttentionItem &item) {
    for (size_t i = 0; i < step.seqs.size(); ++i)
        if (step.seqs[i].row_begin == item.row_begin) return static_cast<int>(i);
    return -1;
}

// Positions that each (sequence, kv head, column) meets, as intervals in the order of the list.
using Column = std::tuple<int, int, int>;
using Intervals = std::map<Column, std::vector<std::pair<int, int>>>;

Intervals intervals_of(const Step &step, const SequencePlans &plans, const DeviceShape &shape) {
    Intervals out;
    const int group = shape.n_head / shape.n_head_kv;
    for (const AttentionItem &item : plans.attention) {
        if (!item.exists()) continue;
        const int sequence = sequence_of(step, item);
        const int last = std::min(item.first_column + 8 * plans.column_groups, item.n_columns);
        for (int column = item.first_column; column < last; ++column) {
            const int end = std::min(item.end, item.first_position + column / group + 1);
            if (end > item.begin) out[{sequence, item.kv_head, column}].push_back({item.begin, end});
        }
    }
    return out;
}

void check_coverage(const Step &step, const SequencePlans &plans, const DeviceShape &shape) {
    const int group = shape.n_head / shape.n_head_kv;
    Intervals found = intervals_of(step, plans, shape);
    size_t n_columns = 0;
    for (int i = 0; i < step.in.n_seqs; ++i) n_columns += step.seqs[i].n_rows * shape.n_head;
    CHECK(found.size() == n_columns, "%zu of %zu columns", found.size(), n_columns);
    for (auto &[column, parts] : found) {
        const auto &[sequence, kv_head, index] = column;
        const int end = step.positions[step.seqs[sequence].row_begin] + index / group + 1;
        std::sort(parts.begin(), parts.end());
        int position = 0;
        for (const auto &[begin, part_end] : parts) {
            CHECK(begin == position, "column %d of sequence %d, head %d: %d after %d", index, sequence, kv_head, begin,
                  position);
            position = part_end;
        }
        CHECK(position == end, "column %d of sequence %d ends at %d, not %d", index, sequence, position, end);
    }
}

void check_partials(const Step &step, const SequencePlans &plans, const DeviceShape &shape, int64_t limit) {
    std::vector<std::pair<int64_t, int64_t>> used;
    for (int i = 0; i < step.in.n_seqs; ++i) {
        const SeqPlan &plan = plans.plans[i];
        const int64_t floats =
            int64_t{step.seqs[i].n_rows} * shape.n_head * plan.n_segments * (kPartialHeader + shape.head_dim);
        if (plan.partial >= 0) used.push_back({plan.partial, plan.partial + floats});
    }
    std::sort(used.begin(), used.end());
    for (size_t i = 0; i < used.size(); ++i) {
        CHECK(used[i].second <= limit, "partial results end at %lld", static_cast<long long>(used[i].second));
        if (i) CHECK(used[i - 1].second <= used[i].first, "partial results overlap");
    }
}

// Tiles of 128 positions of the CTA that has most, as attention.cuh deals them, over the mean.
double imbalance(const SequencePlans &plans, int n_cta) {
    std::vector<int> tiles(n_cta, 0);
    int total = 0;
    for (size_t i = 0; i < plans.attention.size(); ++i) {
        const AttentionItem &item = plans.attention[i];
        const int turn = static_cast<int>(i) / n_cta, at = static_cast<int>(i) % n_cta;
        const int n = (item.end - item.begin + 127) / 128;
        tiles[attention_index(turn, at, n_cta) % n_cta] += n;
        total += n;
    }
    return static_cast<double>(*std::max_element(tiles.begin(), tiles.end())) * n_cta / total;
}

// A CTA stops at its first turn without an item.
void check_turns(const SequencePlans &plans, int n_cta) {
    const int n = static_cast<int>(plans.attention.size());
    for (int cta = 0; cta < n_cta; ++cta) {
        bool ended = false;
        for (int turn = 0; turn * n_cta < n; ++turn) {
            const int at = attention_index(turn, cta, n_cta);
            const bool exists = at < n && plans.attention[at].exists();
            CHECK(!ended || !exists, "CTA %d has an item in turn %d after a turn without", cta, turn);
            ended = !exists;
        }
    }
}

void check_convolution(const Step &step, const SequencePlans &plans, const DeviceShape &shape) {
    int next = 0;
    for (int i = 0; i < step.in.n_seqs; ++i) {
        CHECK(plans.plans[i].first_convolve == next, "sequence %d begins at item %d", i, plans.plans[i].first_convolve);
        const pj_seq &seq = step.seqs[i];
        const int chunk = plans.plans[i].chunk_rows;
        CHECK(chunk % kConvolveRows == 0 && chunk >= seq.n_accept + kConvolveRows,
              "the first chunk of sequence %d, which accepts %d rows, has %d", i, seq.n_accept, chunk);
        next += convolve_items(shape, seq.n_accept + seq.n_rows, chunk);
    }
    CHECK(plans.n_convolve_items == next, "%d items", plans.n_convolve_items);
}

void check(Step &step, const DeviceShape &shape, const PlanLimits &limits) {
    static SequencePlans plans;  // what is left of a step before must not count
    plan_sequences(step.done(), shape, limits, plans);
    CHECK(plans.column_groups <= limits.most_column_groups, "%d", plans.column_groups);
    check_coverage(step, plans, shape);
    check_turns(plans, limits.n_cta);
    check_partials(step, plans, shape, limits.partial_floats);
    check_convolution(step, plans, shape);
}

void check_balance(int n_seqs, int n_rows, int position, double most) {
    Step step;
    for (int i = 0; i < n_seqs; ++i) step.add(position, n_rows);
    SequencePlans plans;
    plan_sequences(step.done(), shape_27b(), {132, 4, 1 << 25}, plans);
    const double found = imbalance(plans, 132);
    CHECK(found <= most, "%d x %d rows at %d: %.2f", n_seqs, n_rows, position, found);
}

// Chunks are as short as there are warps for them.
void check_chunks(int n_rows, int most_items) {
    Step step;
    step.add(0, n_rows);
    SequencePlans plans;
    plan_sequences(step.done(), shape_27b(), {132, 4, 1 << 25}, plans);
    const int items = plans.n_convolve_items, one_less = plans.plans[0].chunk_rows - kConvolveRows;
    CHECK(items <= most_items, "%d rows: %d items", n_rows, items);
    CHECK(one_less == 0 || convolve_items(shape_27b(), n_rows, one_less) > most_items,
          "%d rows: %d items, chunks of %d", n_rows, items, plans.plans[0].chunk_rows);
}

}  // namespace

int main() {
    std::mt19937 random(5);
    const auto pick = [&](int n) { return static_cast<int>(random() % n); };
    for (int i = 0; i < 60; ++i) {
        Step step;
        const int n_seqs = 1 + pick(6);
        for (int j = 0; j < n_seqs; ++j)
            step.add(pick(i % 3 ? 40000 : 700), pick(4) ? 1 + pick(4) : 1 + pick(300), pick(5));
        check(step, i % 4 ? shape_27b() : shape_dense(),
              {pick(2) ? 132 : 82, 1 + pick(4), int64_t{1} << (18 + pick(8))});
    }
    check_balance(4, 3, 23000, 1.06);
    check_balance(8, 3, 23000, 1.06);
    check_balance(4, 3, 100000, 1.03);
    for (int n_rows : {1, 40, 64, 128, 256}) check_chunks(n_rows, 132 * 8);
    return check_result();
}
