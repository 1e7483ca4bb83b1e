#include "cuda/op_list.h"

#include <algorithm>

#include "core/status.h"
#include "cuda/pack_unit.h"
#include "cuda/split.h"

namespace pj::cuda {

namespace {

// Inputs per scale of the activations that go with a weight's tiles, as on the CPU (cpu/activations.h);
// 0: the generic path multiplies floats.
int act_span_of(const Matrix &m) {
    switch (tile_format(m.type, m.n_in)) {
        case kTileQ4K:
        case kTileQ5K:
        case kTileQ6K:
            return 256;
        case kTileQ8:
            return 32;
        default:
            return 0;
    }
}

int form_of(const Matrix &m) {
    const int span = act_span_of(m);
    return span == 0 ? kActFloat : span == 256 ? kActSpan256 : kActSpan32;
}

// The generic product counts (output, 8 rows) in 32 bits.
void check_items(int n_out, int max_rows) {
    if (int64_t{n_out} * ((max_rows + 7) / 8) > INT32_MAX / 2)
        fail(PJ_ERR_MODEL, "a matrix of %d outputs is too large for steps of %d rows on the CUDA backend", n_out,
             max_rows);
}

}  // namespace

int forms_of(std::initializer_list<const Matrix *> readers) {
    int forms = 0;
    for (const Matrix *m : readers) forms |= form_of(*m);
    return forms;
}

Op &OpList::add(OpKind kind) {
    ops_.push_back({});
    ops_.back().kind = kind;
    if (rows_ == kRowsDrafting) ops_.back().flags = kOpDrafting;
    return ops_.back();
}

void OpList::reads(Op &op, std::initializer_list<Product> products) {
    for (const Product &p : products) op.input[op.n_inputs++] = p;
}

void OpList::writes(Op &op, int width, std::initializer_list<const Matrix *> readers) {
    op.width = padded_columns(width);
    op.act_forms = forms_of(readers);
    out_.act_width = std::max(out_.act_width, op.width);
    if (op.act_forms & kActFloat) out_.act_f32_width = std::max(out_.act_f32_width, op.width);
}

// The table of a shape's pieces; matrices that are not split have one piece per block. Whoever reads whole groups
// of 256 columns finds none behind the last block.
const PieceSpan *OpList::pieces(const Gemm &g, bool split) {
    const std::array<int, 3> shape = {g.n_blocks, split ? g.k_units : 0, g.n_ctas};
    const auto [at, is_new] = tables_.try_emplace(shape, out_.pieces.size());
    for (int b = 0; is_new && b < g.n_blocks; ++b)
        out_.pieces.push_back(split ? pieces_of(slices_of(g.n_blocks, g.k_units), g.k_units, b, g.n_ctas)
                                    : PieceSpan{b, 1});
    for (int b = g.n_blocks; is_new && b % (kUnitInputs / kUnitOutputs); ++b) out_.pieces.push_back({0, 0});
    return memory_.pieces ? memory_.pieces + at->second : nullptr;
}

int OpList::most_rows(int32_t rows) const { return rows == kRowsAll ? limits_.max_rows : limits_.max_selected; }

// Floats of a matrix' output in steps of few rows and in wide ones.
int64_t OpList::output_floats(const Gemm &g, bool split) const {
    const int64_t slots = split ? piece_slots(slices_of(g.n_blocks, g.k_units), g.n_blocks, g.n_ctas) : g.n_blocks;
    return std::max(slots * g.piece_rows, int64_t{g.n_blocks} * most_rows(g.rows)) * kUnitOutputs;
}

Shares OpList::shares(std::initializer_list<const Matrix *> matrices) {
    Shares shares(matrices, limits_.n_cta);
    // Small ops go to different CTAs, one after the other.
    if (shares.n_ctas() < limits_.n_cta) {
        shares.start_at(next_cta_);
        next_cta_ = (next_cta_ + shares.n_ctas()) % limits_.n_cta;
    }
    return shares;
}

Product OpList::add_gemm(Op &op, const Matrix &m, Shares &shares, float *region, int64_t *offset, GemmRows rows,
                         Factor factor) {
    Gemm &g = op.gemm[op.n_gemms++];
    g.format = tile_format(m.type, m.n_in);
    const bool split = unit_bytes(g.format) != 0;
    (split ? g.weight : g.raw) = weights_.matrix(m);
    g.type = m.type;
    g.n_in = m.n_in;
    g.n_out = m.n_out;
    g.n_blocks = blocks_of(m);
    g.k_units = k_units_of(m);
    check_units(g);
    if (split) shares.place(m, g);
    g.pieces = pieces(g, split);
    g.act_span = act_span_of(m);
    g.rows = rows;
    g.piece_rows = narrow_tiles(std::min(most_rows(rows), limits_.narrow_rows)) * 8;
    g.out = region ? region + *offset : nullptr;
    *offset += output_floats(g, split);
    if (split)
        add_task(g);
    else
        check_items(m.n_out, most_rows(rows));
    return {g.out, g.pieces, g.n_blocks * kUnitOutputs, factor == Factor::kDeferred ? 1 : 0, g.piece_rows, 0};
}

void OpList::check_units(const Gemm &g) const {
    if (int64_t{g.n_blocks} * g.k_units * limits_.n_cta > INT32_MAX)
        fail(PJ_ERR_MODEL, "a matrix of %d x %d units is too large for the CUDA backend", g.n_blocks, g.k_units);
}

void OpList::add_task(const Gemm &g) {
    LoadTask task = {};
    task.weight = g.weight;
    task.n_blocks = g.n_blocks;
    task.k_units = g.k_units;
    task.unit_bytes = unit_bytes(g.format);
    task.first_cta = g.first_cta;
    task.n_ctas = g.n_ctas;
    task.act_span = g.act_span;
    task.rows = g.rows;
    task.op = static_cast<int32_t>(ops_.size()) - 1;
    tasks_.push_back(task);
}

std::vector<Product> OpList::gemms(std::initializer_list<const Matrix *> matrices, GemmRows rows, Factor factor) {
    Op &op = add(OpKind::kGemm);
    std::vector<Product> products;
    int64_t offset = 0;
    Shares at = shares(matrices);
    for (const Matrix *m : matrices) products.push_back(add_gemm(op, *m, at, memory_.between, &offset, rows, factor));
    out_.between_floats = std::max(out_.between_floats, offset);
    barrier();
    return products;
}

}  // namespace pj::cuda
