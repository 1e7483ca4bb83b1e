#include "cuda/sequence_plans.h"

#include <algorithm>
#include <climits>
#include <numeric>
#include <utility>

#include "cuda/megakernel.h"

namespace pj::cuda {

namespace {

constexpr int kLongestChunk = 40;

// Where a CTA has nothing more to do: of no sequence.
AttentionItem no_item() {
    AttentionItem item = {};
    item.row_begin = -1;
    return item;
}

class Planner {
  public:
    Planner(const pj_step_in &in, const DeviceShape &shape, const PlanLimits &limits, SequencePlans &out)
        : in_(in), shape_(shape), limits_(limits), group_(static_cast<int>(shape.head_group)), out_(out) {}

    void plan() {
        out_.column_groups = 1;
        out_.attention.clear();
        choose_columns();
        place_partials();
        place_convolution(best_chunk());
        place_attention();
    }

  private:
    // All items together; costs as cost() says.
    struct Load {
        int n_items = 0, total = 0, largest = 0;
    };

    // Rows of a sequence's chunks, of which the first one has all rows that read what earlier steps left.
    int chunk_of(int sequence, int chunk) const {
        const int least = in_.seqs[sequence].n_accept + kConvolveRows;
        return std::max(chunk, (least + kConvolveRows - 1) / kConvolveRows * kConvolveRows);
    }

    void place_convolution(int chunk) {
        out_.n_convolve_items = 0;
        for (int i = 0; i < in_.n_seqs; ++i) {
            SeqPlan &plan = out_.plans[i];
            plan.chunk_rows = chunk_of(i, chunk);
            plan.first_convolve = out_.n_convolve_items;
            out_.n_convolve_items += convolve_items(shape_, in_.seqs[i].n_accept + in_.seqs[i].n_rows, plan.chunk_rows);
        }
    }

    // A warp reads the rows before its chunk too, and takes its items one after the other: chunks that are shorter
    // only help as long as there are warps for them.
    int best_chunk() {
        const int n_warps = limits_.n_cta * kConsumerWarps;
        int best = kConvolveRows, least = INT_MAX;
        for (int chunk = kConvolveRows; chunk <= kLongestChunk; chunk += kConvolveRows) {
            place_convolution(chunk);
            const int rounds = (out_.n_convolve_items + n_warps - 1) / n_warps;
            const int cost = rounds * (chunk + 2 * kConvolveRows);
            if (cost < least) best = chunk, least = cost;
        }
        return best;
    }

    int columns() const { return 8 * out_.column_groups; }

    void choose_columns() {
        for (int i = 0; i < in_.n_seqs; ++i)
            out_.column_groups = std::max(out_.column_groups,
                                          std::min(limits_.most_column_groups, (in_.seqs[i].n_rows * group_ + 7) / 8));
    }

    // Sequences with the fewest rows first: they have the fewest tiles of columns, so they gain most from
    // segments computed apart. Long prompts have enough tiles to keep every CTA busy.
    void place_partials() {
        std::vector<int> order(in_.n_seqs);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int x, int y) { return in_.seqs[x].n_rows < in_.seqs[y].n_rows; });
        out_.plans.resize(in_.n_seqs);
        int64_t used = 0;
        for (int i : order) {
            const pj_seq &seq = in_.seqs[i];
            SeqPlan &plan = out_.plans[i];
            plan.n_segments = segment_of(in_.row_position[seq.row_begin + seq.n_rows - 1]) + 1;
            const int64_t floats =
                int64_t{seq.n_rows} * shape_.n_head * plan.n_segments * (kPartialHeader + shape_.head_dim);
            const int n_tiles = (seq.n_rows * group_ + columns() - 1) / columns() * shape_.n_head_kv;
            const bool apart = n_tiles < 2 * limits_.n_cta && used + floats <= limits_.partial_floats;
            plan.partial = apart ? used : -1;
            if (apart) used += floats;
        }
    }

    // Calls tile(item) for each tile of columns and segment that has positions; an item for each kv head is the same
    // but for that. Those that walk all segments come first, then segments from the last one on.
    template <class Tile>
    void for_tiles(const Tile &tile) const {
        int n_segments = 0;
        for (int i = 0; i < in_.n_seqs; ++i) {
            if (out_.plans[i].partial < 0)
                tiles_of(i, 0, tile);
            else
                n_segments = std::max(n_segments, out_.plans[i].n_segments);
        }
        for (int segment = n_segments - 1; segment >= 0; --segment)
            for (int i = 0; i < in_.n_seqs; ++i)
                if (out_.plans[i].partial >= 0 && segment < out_.plans[i].n_segments) tiles_of(i, segment, tile);
    }

    template <class Tile>
    void tiles_of(int sequence, int segment, const Tile &tile) const {
        const pj_seq &seq = in_.seqs[sequence];
        const SeqPlan &plan = out_.plans[sequence];
        AttentionItem item = {};
        item.partial = plan.partial;
        item.n_segments = plan.n_segments;
        item.row_begin = seq.row_begin;
        item.n_columns = seq.n_rows * group_;
        item.first_position = in_.row_position[seq.row_begin];
        item.page_begin = seq.page_begin;
        item.begin = segment_begin(segment);
        for (; item.first_column < item.n_columns; item.first_column += columns()) {
            const int last_column = std::min(item.first_column + columns(), item.n_columns) - 1;
            item.end = item.first_position + last_column / group_ + 1;
            if (plan.partial >= 0) item.end = std::min(item.end, segment_begin(segment + 1));
            // Early rows of a chunk may end before a segment.
            if (item.exists()) tile(item);
        }
    }

    // What an item costs, in half tiles: it also begins and ends.
    static int cost(const AttentionItem &item) { return 2 * ((item.end - item.begin + 127) / 128) + 1; }

    void place_attention() {
        Load load;
        for_tiles([&](const AttentionItem &item) {
            load.n_items += shape_.n_head_kv;
            load.total += cost(item) * shape_.n_head_kv;
            load.largest = std::max(load.largest, cost(item));
        });
        if (load.n_items > limits_.n_cta)
            deal_attention(load);
        else
            for_tiles([&](AttentionItem item) {
                for (; item.kv_head < shape_.n_head_kv; ++item.kv_head) out_.attention.push_back(item);
            });
    }

    // Each item goes to the CTA that has least to do so far; the longest come first, so they end close together. CTAs
    // of equal load are a linked list, and the least load only grows.
    void deal_attention(const Load &load) {
        const int n_cta = limits_.n_cta;
        std::vector<int> first(load.total / n_cta + load.largest + 1, -1), next(n_cta), turns(n_cta, 0);
        for (int cta = 0; cta < n_cta; ++cta) next[cta] = cta + 1 < n_cta ? cta + 1 : -1;
        first[0] = 0;
        int least = 0;
        size_t end = 0;
        for_tiles([&](AttentionItem item) {
            for (const int more = cost(item); item.kv_head < shape_.n_head_kv; ++item.kv_head) {
                while (first[least] < 0) ++least;
                const int cta = first[least];
                first[least] = next[cta];
                next[cta] = first[least + more];
                first[least + more] = cta;
                const int turn = turns[cta]++;
                if (turn * n_cta >= static_cast<int>(out_.attention.size()))
                    out_.attention.resize(size_t(turn + 1) * n_cta, no_item());
                const size_t at = attention_index(turn, cta, n_cta);
                out_.attention[at] = item;
                end = std::max(end, at + 1);
            }
        });
        out_.attention.resize(end);
    }

    const pj_step_in &in_;
    const DeviceShape &shape_;
    const PlanLimits limits_;
    const int group_;
    SequencePlans &out_;
};

}  // namespace

void plan_sequences(const pj_step_in &in, const DeviceShape &shape, const PlanLimits &limits, SequencePlans &out) {
    Planner(in, shape, limits, out).plan();
}

}  // namespace pj::cuda
