// What the CUDA engine allocates, and how shared memory is cut.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/quants.h"
#include "core/sample_maxima.h"
#include "core/sample_params.h"
#include "core/status.h"
#include "cuda/engine.h"
#include "cuda/megakernel.h"

namespace pj::cuda {

namespace {

constexpr int64_t kMaxPartialFloats = 1 << 25;           // 128 MiB of attention partials
constexpr size_t kStaticShared = 8 << 10;                // left for static shared memory and the driver
constexpr uint64_t kDriverReserve = uint64_t{96} << 20;  // local memory of the kernels, allocation granularity

int row_tiles(int max_rows) { return (max_rows + 7) / 8; }

int64_t act_tiles(const Programs &p, int max_rows) {
    return int64_t{(p.act_width + kUnitInputs - 1) / kUnitInputs} * row_tiles(max_rows);
}

int square_sum_columns(const Shape &s) { return row_columns(s) / kUnitInputs; }

// Channels before the convolution, beta and decay; whole vectors of four floats.
int64_t pending_row_floats(const Shape &s) { return (s.conv_channels() + 2 * s.n_gdn_head_v + 3) / 4 * 4; }

// Rows that the recurrence of one layer reads in a step, or of all layers when speculative rows are committed.
int64_t gdn_row_count(const pj_config &c, const Programs &p) {
    return std::max<int64_t>(c.max_rows + int64_t{c.max_seqs} * c.max_spec, int64_t{p.n_gdn_layers} * c.max_spec);
}

int64_t most_draft_rows(const pj_config &c) { return c.max_draft ? std::min(c.max_seqs, PJ_MAX_DRAFT_ROWS) : 0; }

// Blocks of the draft head: those of the lowest ids, and room for those that a step names.
int draft_blocks(const Shape &s, const pj_config &c) {
    const int low = draft_low_ids(c, s.n_vocab);
    return (low + PJ_DRAFT_BLOCK - 1) / PJ_DRAFT_BLOCK + (low < s.n_vocab ? PJ_MAX_DRAFT_BLOCKS : 0);
}

// DraftArgs::embedding, hidden and squares, which live where the recurrence has its rows: that is over when drafts
// are made.
int64_t draft_row_floats(const Shape &s, const pj_config &c) {
    return c.max_draft || s.n_nextn ? 2 * int64_t{c.max_rows} * (row_columns(s) + square_sum_columns(s)) : 0;
}

// Sub-arrays of the float workspace.
struct FloatPlan {
    FloatPlan(const Shape &s, const pj_config &c, const Programs &p, int max_selected, int64_t partial_floats) {
        const int64_t rows = c.max_rows, query_width = int64_t{WideHeads(s).n_query} * kWideDim;
        x = take(rows * row_columns(s));
        heads = take(rows * std::max<int64_t>(query_width, s.gdn_value_width()));
        query = take(rows * query_width);
        square_sums = take(rows * square_sum_columns(s));
        act_f32 = take(rows * p.act_f32_width);
        partial = take(partial_floats);
        logits = take(int64_t{max_selected} * s.n_vocab);
        maxima = take(run_of_maxima(s.n_vocab) ? int64_t{max_selected} * kSampleGroups : 0);
        hidden = take(rows * row_columns(s));
        gdn_rows = take(std::max(gdn_row_count(c, p) * pending_row_floats(s), draft_row_floats(s, c)));
        draft_logits = take(most_draft_rows(c) * 64LL * draft_blocks(s, c));
        draft_chunks =
            take(most_draft_rows(c) * 2LL * ((64LL * draft_blocks(s, c) + kDraftChunkIds - 1) / kDraftChunkIds));
    }

    int64_t take(int64_t n) {
        const int64_t begin = total;
        total += (n + 63) / 64 * 64;
        return begin;
    }

    int64_t x, heads, query, square_sums, act_f32, partial, logits, maxima, hidden, gdn_rows, draft_logits,
        draft_chunks, total = 0;
};

DeviceShape device_shape(const Shape &s, const Programs &p) {
    DeviceShape d = {};
    const WideHeads wide(s);
    d.n_embd = row_columns(s);
    d.norm_width = s.n_embd;
    d.n_head = wide.n_query;
    d.n_head_kv = wide.n_kv;
    d.head_dim = kWideDim;
    d.head_group = wide.head_group();
    d.head_group_reciprocal = ((1u << 24) + d.head_group - 1) / d.head_group;
    d.query_heads = s.n_head;
    d.query_dim = s.head_dim;
    d.query_group = s.head_group();
    d.query_groups = (s.n_head * s.head_dim + kWideDim - 1) / kWideDim;
    d.rope_dim = s.rope_dim;
    d.rope_in_pairs = s.rope_in_pairs;
    d.gated_attention = s.gated_attention;
    d.n_gdn_head_v = s.n_gdn_head_v;
    d.n_gdn_head_k = s.n_gdn_head_k;
    d.gdn_dim = s.gdn_dim;
    d.conv_kernel = s.conv_kernel;
    d.n_vocab = s.n_vocab;
    d.n_attention_layers = p.n_attention_layers;
    d.n_gdn_layers = p.n_gdn_layers;
    d.rms_eps = s.rms_eps;
    return d;
}

void require(bool ok, const char *what, int value, const char *needed) {
    if (!ok)
        fail(PJ_ERR_MODEL, "the model's %s is %d, the CUDA backend needs %s; use the CPU device", what, value, needed);
}

bool is_head_width(int n) { return n == 64 || n == 128 || n == 256; }

// The kernel keeps whole heads in registers, so their sizes are compiled in: those of the qwen35 family, and three for
// dense models.
void check_hybrid(const Shape &s) {
    require(s.head_dim == 256, "attention head width", s.head_dim, "256");
    require(s.rope_dim == 64, "number of rotated dimensions", s.rope_dim, "64");
    require(s.head_group() <= kConsumerWarps, "number of query heads per key/value head", s.head_group(), "8 or fewer");
    require(s.gdn_dim == 128, "GDN head width", s.gdn_dim, "128");
    require(s.conv_kernel == 4, "number of convolution taps", s.conv_kernel, "4");
    require(s.n_embd % kUnitInputs == 0, "hidden width", s.n_embd, "a multiple of 256");
    require(s.n_ff % kUnitInputs == 0, "feed-forward width", s.n_ff, "a multiple of 256");
    require(s.n_gdn_head_v % 2 == 0, "number of GDN value heads", s.n_gdn_head_v, "an even one");
}

void check_dense(const Shape &s) {
    require(is_head_width(s.head_dim), "attention head width", s.head_dim, "64, 128 or 256");
    require(is_head_width(s.rope_dim), "number of rotated dimensions", s.rope_dim, "64, 128 or 256");
    require(s.head_group() <= 16, "number of query heads per key/value head", s.head_group(), "16 or fewer");
    require(s.n_embd % kUnitOutputs == 0, "hidden width", s.n_embd, "a multiple of 64");
    require(s.n_ff % kUnitOutputs == 0, "feed-forward width", s.n_ff, "a multiple of 64");
}

Device open_checked(const Shape &s, int index) {
    if (s.gated_attention)
        check_hybrid(s);
    else
        check_dense(s);
    return open_device(index);
}

// Positions that a sequence can have.
int most_positions(const Shape &s, const pj_config &c) {
    return static_cast<int>(std::min<int64_t>(int64_t{c.n_pages} * c.page_tokens, s.n_ctx_train));
}

// What attention computes of pages with 32 bits has to fit: the page of a position p, for which p * page_tokens must,
// and places within a layer's page.
void check_pages(const pj_config &c, const Shape &s, const KvLayout &kv) {
    if (int64_t{most_positions(s, c)} * c.page_tokens > UINT32_MAX || kv.layer_bytes > UINT32_MAX)
        fail(PJ_ERR_ARGUMENT, "pages of %d tokens are too large for the CUDA backend", c.page_tokens);
}

// Likewise of rows: places of heads, and the row of a column c, for which c * (head_group - 1) is less than 2^24.
void check_rows(const pj_config &c, const Shape &s) {
    const WideHeads wide(s);
    const int64_t group = wide.head_group(), columns = c.max_rows * group;
    if (c.max_rows * int64_t{wide.n_query} * kWideDim > INT32_MAX || columns * (group - 1) >= 1 << 24)
        fail(PJ_ERR_ARGUMENT, "steps of %d rows are too large for the CUDA backend", c.max_rows);
}

// 2^32 / page_tokens, rounded up.
uint32_t page_reciprocal(const pj_config &c) {
    return static_cast<uint32_t>(((uint64_t{1} << 32) + c.page_tokens - 1) / c.page_tokens);
}

// Row tiles of a step at most before it is a wide one. The products of 512 rows of the 27B shape take 63 ms in eight
// groups of an H200 and 73 in a wide step, whose CTAs have less even work, but then pieces of 512 rows need 140 MB. Not
// measured where pairs of warps multiply: their cards have small L2 caches, which groups read the weights through.
int narrow_row_tiles(const Device &device) { return device.capability == 90 ? 4 * kPassTiles : kPassTiles; }

// Partials of a step whose every row sees the whole pool, if that is less than the limit.
int64_t partial_capacity(const Shape &s, const pj_config &c) {
    const int64_t segments = segment_of(most_positions(s, c) - 1) + 1;
    return std::min(c.max_rows * int64_t{WideHeads(s).n_query} * segments * (kPartialHeader + kWideDim),
                    kMaxPartialFloats);
}

}  // namespace

CudaEngine::CudaEngine(const Model &model, const pj_config &config, PlanOnly)
    : shape_(model.shape),
      rope_factors_(model.rope_factors),
      config_(config),
      device_(open_checked(model.shape, config.device_index)),
      max_selected_(std::min(config.max_rows, kMostSelected)),
      embedding_(model.token_embd),
      mtp_embedding_(model.mtp.empty() ? Matrix{} : model.mtp[0].embedding),
      weights_(model),
      programs_(compile_programs(model, weights_, program_limits(), {})),
      kv_(model.shape, config, programs_.n_attention_layers),
      partial_floats_(partial_capacity(model.shape, config)),
      pending_(config.n_state_slots, 0) {
    check_pages(config_, shape_, kv_);
    check_rows(config_, shape_);
    plan_launches();
    plan_states();
}

ProgramLimits CudaEngine::program_limits() const {
    return {device_.n_sm,  config_.max_rows,  narrow_row_tiles(device_) * 8,
            max_selected_, config_.max_draft, draft_blocks(shape_, config_)};
}

CudaEngine::CudaEngine(const Model &model, const pj_config &config) : CudaEngine(model, config, PlanOnly{}) {
    check_memory();
    allocate();
    weights_.upload(config_);
    programs_ = compile_programs(model, weights_, program_limits(),
                                 {residual_products_.data(), products_.data(), pieces_.data()});
    fill_constants();
}

// Shared memory of launches by their row tiles: 1, 2, 3, 4 or 8 that share one read of the weights, or several groups
// of 8. Cards with little shared memory have fewer: a ring must hold two units, and four to keep the groups busy.
void CudaEngine::plan_launches() {
    const size_t unit = std::max(weights_.max_unit_bytes(), 1);
    const auto holds = [&](const Launch &launch, size_t n_units) { return launch.ring_bytes >= n_units * unit; };
    for (int tiles : {1, 2, 3, 4, kPassTiles}) {
        const Launch launch = plan_launch(tiles, false);
        if (holds(launch, tiles == kPassTiles ? 4 : 2)) narrow_.push_back(launch);
    }
    if (!narrow_.empty() && narrow_.back().pass_tiles == kPassTiles)
        while (narrow_.back().row_tiles < narrow_row_tiles(device_)) {
            Launch more = narrow_.back();
            more.row_tiles += kPassTiles;
            narrow_.push_back(more);
        }
    wide_ = plan_launch(8, true);
    if (!holds(wide_, 4)) wide_ = plan_launch(4, true);
    if (narrow_.empty() || !holds(wide_, 2))
        fail(PJ_ERR_DEVICE,
             "%s gives a block %zu bytes of shared memory, too few for two units of %zu; use the CPU device",
             device_.name.c_str(), device_.shared_limit, unit);
}

// Activations come from the L2 a slice at a time: some slices are on their way. The rest is for weights, which wait
// for nobody.
CudaEngine::Launch CudaEngine::plan_launch(int tiles, bool wide) const {
    const size_t limit = device_.shared_limit - std::min(device_.shared_limit, kStaticShared);
    Launch launch = {tiles, wide || tiles > 2 ? 4 : 8, tiles, 0, 0};
    const auto act_bytes = [&] { return launch.act_slots * tiles * sizeof(ActTile); };
    while (launch.act_slots > 2 && act_bytes() > limit * 2 / 5) launch.act_slots /= 2;
    const size_t others = shared_bytes(0, launch.act_slots, tiles);
    launch.ring_bytes = others < limit ? static_cast<int>((limit - others) / 128 * 128) : 0;
    launch.shared_bytes = shared_bytes(launch.ring_bytes, launch.act_slots, tiles);
    return launch;
}

void CudaEngine::plan_states() {
    window_floats_ = int64_t{shape_.conv_kernel - 1} * shape_.conv_channels();
    layer_floats_ = window_floats_ + int64_t{shape_.n_gdn_head_v} * shape_.gdn_dim * shape_.gdn_dim;
    slot_floats_ = layer_floats_ * programs_.n_gdn_layers;
    pending_row_floats_ = pending_row_floats(shape_);
}

uint64_t CudaEngine::workspace_bytes() const {
    const FloatPlan floats(shape_, config_, programs_, max_selected_, partial_floats_);
    return (floats.total + programs_.residual_floats + programs_.between_floats) * sizeof(float) +
           2 * act_tiles(programs_, config_.max_rows) * sizeof(ActTile) +
           LateMasks::device_bytes(most_masks(), mask_words(shape_.n_vocab));
}

pj_memory_plan CudaEngine::memory_plan() const {
    const int64_t state_floats = slot_floats_ + pending_row_floats_ * config_.max_spec * programs_.n_gdn_layers;
    pj_memory_plan plan = {};
    plan.weight_bytes = weights_.bytes();
    plan.page_bytes = kv_.page_bytes;
    plan.kv_bytes = plan.page_bytes * config_.n_pages;
    plan.state_bytes = state_floats * sizeof(float) * config_.n_state_slots;
    plan.workspace_bytes =
        workspace_bytes() + StepBlob::capacity_for(most_blob_bytes(config_, shape_, max_selected_, partial_floats_));
    plan.reserve_bytes = kDriverReserve;
    plan.free_bytes = device_.free_bytes;
    plan.total_bytes = device_.total_bytes;
    std::snprintf(plan.device_name, sizeof plan.device_name, "%s", device_.name.c_str());
    return plan;
}

pj_memory_plan CudaEngine::plan(const Model &model, const pj_config &config) {
    return CudaEngine(model, config, PlanOnly{}).memory_plan();
}

void CudaEngine::check_memory() const {
    const pj_memory_plan p = memory_plan();
    const uint64_t needed = p.weight_bytes + p.kv_bytes + p.state_bytes + p.workspace_bytes + p.reserve_bytes;
    if (needed <= p.free_bytes) return;
    fail(PJ_ERR_MEMORY,
         "%s of GPU memory are needed (weights %s, KV pages %s, states %s, workspace %s), %s of %s are free on %s; use "
         "a smaller context, fewer slots or a smaller model",
         ByteText(needed).text, ByteText(p.weight_bytes).text, ByteText(p.kv_bytes).text, ByteText(p.state_bytes).text,
         ByteText(p.workspace_bytes + p.reserve_bytes).text, ByteText(p.free_bytes).text, ByteText(p.total_bytes).text,
         p.device_name);
}

void CudaEngine::allocate() {
    const FloatPlan f(shape_, config_, programs_, max_selected_, partial_floats_);
    const int64_t tiles = act_tiles(programs_, config_.max_rows);
    residual_products_ = DeviceBuffer<float>(programs_.residual_floats, "matrix products");
    products_ = DeviceBuffer<float>(programs_.between_floats, "matrix products");
    pieces_ = DeviceBuffer<PieceSpan>(programs_.pieces.size(), "the program");
    floats_ = DeviceBuffer<float>(f.total, "activations");
    act_ = DeviceBuffer<ActTile>(2 * tiles, "activations");
    output_ = PinnedBuffer<LaunchOutput>(1, "activations");
    late_masks_ = LateMasks(most_masks(), mask_words(shape_.n_vocab));
    pool_ = DeviceBuffer<uint8_t>(static_cast<size_t>(kv_.page_bytes) * config_.n_pages, "the KV pages");
    states_ = DeviceBuffer<float>(slot_floats_ * config_.n_state_slots, "the recurrent states");
    pending_rows_ = DeviceBuffer<float>(
        pending_row_floats_ * config_.max_spec * programs_.n_gdn_layers * config_.n_state_slots, "speculative rows");
    rope_ = RopeTable(shape_, rope_factors_, most_positions(shape_, config_));
    if (config_.max_draft) {
        draft_table_ = PinnedBuffer<uint8_t>(mtp_embedding_.n_bytes, "the embedding table of the MTP block");
        std::memcpy(draft_table_.data(), mtp_embedding_.data, mtp_embedding_.n_bytes);
    }
    if (config_.profile) {
        op_clock_ = DeviceBuffer<long long>(programs_.most_ops() + 3, "op times");
        for (const char *name : kOpNames) {
            times_.push_back({});
            std::snprintf(times_.back().name, sizeof times_.back().name, "%s", name);
        }
    }
    const char *const clearing = "clearing GPU memory";
    if (states_.data()) check(cudaMemsetAsync(states_.data(), 0, states_.bytes(), stream_), clearing);
    if (pool_.data()) check(cudaMemsetAsync(pool_.data(), 0, pool_.bytes(), stream_), clearing);
    // Rows that a step does not have are read with its last tile of 8.
    check(cudaMemsetAsync(act_.data(), 0, act_.bytes(), stream_), clearing);
    check(cudaMemsetAsync(floats_.data(), 0, floats_.bytes(), stream_), clearing);

    Buffers &b = base_.buf;
    b.x = floats_.data() + f.x;
    b.heads = floats_.data() + f.heads;
    b.query = floats_.data() + f.query;
    b.square_sums = floats_.data() + f.square_sums;
    b.act_f32 = programs_.act_f32_width ? floats_.data() + f.act_f32 : nullptr;
    b.partial = floats_.data() + f.partial;
    b.logits = floats_.data() + f.logits;
    if (run_of_maxima(shape_.n_vocab)) b.maxima = reinterpret_cast<uint32_t *>(floats_.data() + f.maxima);
    b.hidden = floats_.data() + f.hidden;
    b.gdn_rows = floats_.data() + f.gdn_rows;
    DraftArgs &d = base_.draft;
    d.embedding = b.gdn_rows;
    d.hidden = d.embedding + int64_t{config_.max_rows} * row_columns(shape_);
    d.squares = d.hidden + int64_t{config_.max_rows} * row_columns(shape_);
    d.logits = floats_.data() + f.draft_logits;
    d.chunks = reinterpret_cast<float2 *>(floats_.data() + f.draft_chunks);
    b.act32 = act_.data();
    b.act256 = act_.data() + tiles;
    b.states = states_.data();
    b.pending = pending_rows_.data();
    b.pool = pool_.data();
}

// The rest of base_, the op lists and tables on the device.
void CudaEngine::fill_constants() {
    const char *const copying = "copying the program to the GPU";
    Buffers &b = base_.buf;
    b.state_slot_floats = slot_floats_;
    b.state_layer_floats = layer_floats_;
    b.window_floats = window_floats_;
    b.pending_row_floats = pending_row_floats_;
    b.page_bytes = kv_.layer_bytes;
    b.kv_layer_bytes = kv_.layer_bytes * config_.n_pages;
    b.k_head_bytes = kv_.k_head_bytes;
    b.v_head_bytes = kv_.v_head_bytes;
    base_.shape = device_shape(shape_, programs_);
    base_.row_tiles = row_tiles(config_.max_rows);
    base_.max_rows = config_.max_rows;
    base_.max_selected = max_selected_;
    base_.max_spec = config_.max_spec;
    base_.page_tokens = config_.page_tokens;
    base_.page_reciprocal = page_reciprocal(config_);
    base_.kv_type_k = config_.kv_type_k;
    base_.kv_type_v = config_.kv_type_v;
    base_.k_rotation = kv_.k_rotation;
    base_.v_rotation = kv_.v_rotation;
    base_.score_factor = 1.4426950408889634f / std::sqrt(static_cast<float>(shape_.head_dim));
    base_.draft.table = draft_table_.data();
    base_.embeds = draft_table_.data() && mtp_embedding_.data == embedding_.data;
    base_.draft.table_type = mtp_embedding_.type;
    base_.draft.table_row_bytes = config_.max_draft ? row_bytes(*type_traits(mtp_embedding_.type), shape_.n_embd) : 0;

    std::vector<Op> ops;
    std::vector<LoadTask> tasks;
    for (const Program *p : {&programs_.trunk, &programs_.trunk_rest, &programs_.mtp, &programs_.mtp_rest,
                             &programs_.reading, &programs_.drafting}) {
        device_programs_[p] = {ops.size(), tasks.size()};
        ops.insert(ops.end(), p->ops.begin(), p->ops.end());
        tasks.insert(tasks.end(), p->tasks.begin(), p->tasks.end());
    }
    ops_ = DeviceBuffer<Op>(ops.size(), "the program");
    tasks_ = DeviceBuffer<LoadTask>(tasks.size(), "the program");
    check(cudaMemcpyAsync(ops_.data(), ops.data(), ops_.bytes(), cudaMemcpyHostToDevice, stream_), copying);
    check(cudaMemcpyAsync(tasks_.data(), tasks.data(), tasks_.bytes(), cudaMemcpyHostToDevice, stream_), copying);
    check(cudaMemcpyAsync(pieces_.data(), programs_.pieces.data(), pieces_.bytes(), cudaMemcpyHostToDevice, stream_),
          copying);
    synchronize(copying);
}

}  // namespace pj::cuda
