// Attention's items without a GPU: every row of every head meets each of its positions once, in items no wider than
// its sequence needs, partial results have memory of their own, and CTAs get about the same work.
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
        const int last = std::min(item.first_column + 8 * item.groups, item.n_columns);
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

// Groups of 8 columns, as few as hold what the item computes; none where there is no item.
void check_groups(const SequencePlans &plans, int most) {
    for (const AttentionItem &item : plans.attention) {
        if (!item.exists()) {
            CHECK(item.groups == 0, "%d groups of no item", item.groups);
            continue;
        }
        const int left = item.n_columns - item.first_column;
        CHECK(item.groups >= 1 && item.groups <= most, "%d groups", item.groups);
        CHECK(8 * (item.groups - 1) < left, "%d groups for %d columns", item.groups, left);
    }
}

// The items of each CTA, in its order.
std::vector<std::vector<AttentionItem>> items_of_ctas(const SequencePlans &plans, int n_cta) {
    std::vector<std::vector<AttentionItem>> out(n_cta);
    const int n = static_cast<int>(plans.attention.size());
    for (int cta = 0; cta < n_cta; ++cta)
        for (int turn = 0; attention_index(turn, cta, n_cta) < n; ++turn) {
            const AttentionItem &item = plans.attention[attention_index(turn, cta, n_cta)];
            if (item.exists()) out[cta].push_back(item);
        }
    return out;
}

// Work of the CTA that has most over the mean: tiles of 128 positions, each as long as 4 + groups.
double imbalance(const SequencePlans &plans, int n_cta) {
    int total = 0, most = 0;
    for (const auto &items : items_of_ctas(plans, n_cta)) {
        int work = 0;
        for (const AttentionItem &item : items) work += (item.end - item.begin + 127) / 128 * (4 + item.groups);
        total += work;
        most = std::max(most, work);
    }
    return static_cast<double>(most) * n_cta / total;
}

// The kernel has code for every number of groups, and begins anew when it changes.
void check_order_of_groups(const SequencePlans &plans, int n_cta) {
    for (const auto &items : items_of_ctas(plans, n_cta))
        for (size_t i = 1; i < items.size(); ++i)
            CHECK(items[i].groups <= items[i - 1].groups, "%d groups after %d", items[i].groups, items[i - 1].groups);
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
        next += convolve_items(shape, step.seqs[i].n_accept + step.seqs[i].n_rows);
    }
    CHECK(plans.n_convolve_items == next, "%d items", plans.n_convolve_items);
}

void check(Step &step, const DeviceShape &shape, const PlanLimits &limits) {
    static SequencePlans plans;  // what is left of a step before must not count
    plan_sequences(step.done(), shape, limits, plans);
    check_groups(plans, limits.most_column_groups);
    check_coverage(step, plans, shape);
    check_turns(plans, limits.n_cta);
    check_order_of_groups(plans, limits.n_cta);
    check_partials(step, plans, shape, limits.partial_floats);
    check_convolution(step, plans, shape);
}

// One sequence after the other with one of the numbers of rows.
void check_balance(int n_seqs, const std::vector<int> &rows, int position, double most) {
    Step step;
    for (int i = 0; i < n_seqs; ++i) step.add(position, rows[i % rows.size()]);
    SequencePlans plans;
    plan_sequences(step.done(), shape_27b(), {132, 4, 1 << 25}, plans);
    const double found = imbalance(plans, 132);
    CHECK(found <= most, "%d sequences of %d rows and so on at %d: %.3f", n_seqs, rows[0], position, found);
}

// Items of a sequence are those that it has alone, whatever the others verify.
void check_mixed_depths() {
    const std::vector<int> rows = {1, 3, 5, 2, 4, 6}, widths = {1, 3, 4, 2, 3, 4};
    Step step;
    for (int n : rows) step.add(9000, n);
    SequencePlans plans;
    plan_sequences(step.done(), shape_27b(), {132, 4, 1 << 25}, plans);
    for (const AttentionItem &item : plans.attention) {
        if (!item.exists()) continue;
        const int expected = item.first_column ? 1 : widths[sequence_of(step, item)];  // 6 rows: 32 + 4 columns
        CHECK(item.groups == expected, "%d groups at column %d of %d", item.groups, item.first_column, item.n_columns);
    }
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
    check_mixed_depths();
    check_balance(4, {3}, 23000, 1.06);
    check_balance(8, {3}, 23000, 1.06);
    check_balance(4, {3}, 100000, 1.03);
    check_balance(8, {5, 3, 3, 3, 3, 3, 3, 3}, 23000, 1.06);
    check_balance(8, {1, 3, 5}, 23000, 1.06);
    check_balance(8, {5, 3, 3, 3, 3, 3, 3, 3}, 100000, 1.03);
    check_balance(4, {1, 5}, 100000, 1.03);
    return check_result();
}
