#include "cuda/engine.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "core/quants.h"
#include "core/sample_params.h"
#include "core/status.h"
#include "cuda/megakernel.h"

namespace pj::cuda {

namespace {

constexpr const char *kReading = "running a step on the GPU";

WantedRows wanted_rows(const pj_step_in &in) {
    WantedRows w;
    constexpr uint32_t kLogits = PJ_ROW_LOGITS | PJ_ROW_SAMPLE;
    for (int32_t row = 0; row < in.n_rows; ++row) {
        if (in.row_flags[row] & PJ_ROW_SAMPLE) w.samples.push_back(static_cast<int32_t>(w.selected.size()));
        if (in.row_flags[row] & kLogits) w.selected.push_back(row);
    }
    w.n_logits = static_cast<int>(w.selected.size());
    for (int32_t row = 0; row < in.n_rows; ++row) {
        const uint32_t flags = in.row_flags[row];
        if ((flags & PJ_ROW_ARGMAX) && !(flags & kLogits)) w.selected.push_back(row);
        if (flags & PJ_ROW_HIDDEN) w.hidden.push_back(row);
    }
    return w;
}

bool has_mask(const pj_step_in &in, int sample) { return in.n_mask_words && in.samples[sample].mask_begin >= 0; }

// A launch comes back behind the step only, for debugging: the kernel must not wait for what the host does next.
bool launches_block() {
    static const char *const setting = std::getenv("CUDA_LAUNCH_BLOCKING");
    return setting && *setting && *setting != '0';
}

// Whether the masks of a launch come while it computes. Those of further launches of the step are there.
bool has_late_masks(const pj_step_in &in, int first) { return in.masks_late && first == 0 && !launches_block(); }

// The samples of selected rows first .. first + n - 1; a mask has n_words words.
SampleRange samples_between(const pj_step_in &in, const WantedRows &wanted, int first, int n, int n_words) {
    const auto begin = wanted.samples.begin(), end = wanted.samples.end();
    const auto from = std::lower_bound(begin, end, first), to = std::lower_bound(from, end, first + n);
    SampleRange range = {static_cast<int>(from - begin), static_cast<int>(to - from), 0, 0, 0};
    for (int i = 0; i < range.n; ++i) {
        range.n_counts += in.samples[range.begin + i].n_counts;
        range.n_biases += in.samples[range.begin + i].n_biases;
        if (has_mask(in, range.begin + i)) range.n_mask_words += n_words;
    }
    return range;
}

// Asked once: the C library opens and reads a file of the system each time.
unsigned n_processors() {
    static const unsigned n = std::max(1u, std::thread::hardware_concurrency());
    return n;
}

// Calls body(row) for all rows. A prompt chunk's take some milliseconds: the GPU would wait for one thread.
template <class Body>
void for_rows(int n_rows, const Body &body) {
    constexpr int kRowsPerThread = 64, kMostThreads = 8;
    const int most = std::min<int>(kMostThreads, n_processors());
    const int n_threads = std::clamp(n_rows / kRowsPerThread, 1, most);
    const auto run = [&](int thread) {
        for (int row = n_rows * thread / n_threads; row < n_rows * (thread + 1) / n_threads; ++row) body(row);
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < n_threads; ++i) threads.emplace_back(run, i);
    run(0);
    for (std::thread &thread : threads) thread.join();
}

// Tokens that samples change, room for their logits before, and masks.
size_t sample_bytes(const SampleRange &samples) {
    return StepBlob::size_of<SampleRow>(samples.n) + StepBlob::size_of<pj_token_count>(samples.n_counts) +
           StepBlob::size_of<pj_token_bias>(samples.n_biases) +
           StepBlob::size_of<float>(samples.n_counts + samples.n_biases) +
           StepBlob::size_of<uint32_t>(samples.n_mask_words);
}

// What the host sends with a step.
size_t blob_bytes(size_t rows, size_t seqs, size_t page_entries, size_t attention, const Shape &shape) {
    return StepBlob::size_of<StepArgs>(2) + StepBlob::size_of<uint32_t>(kBarrierWords) +
           StepBlob::size_of<LaunchOutput>(1) + 4 * StepBlob::size_of<int32_t>(rows) + StepBlob::size_of<pj_seq>(seqs) +
           StepBlob::size_of<SeqPlan>(seqs) + StepBlob::size_of<AttentionItem>(attention) +
           StepBlob::size_of<int32_t>(page_entries) + 2 * StepBlob::size_of<float>(rows * (shape.rope_dim / 2)) +
           2 * StepBlob::size_of<float>(rows * row_columns(shape));
}

}  // namespace

// Pages that several sequences share are in the table of each. Attention items: a tile of at least eight columns has
// partial results of its own or walks all segments; each kv head of a sequence may have one tile that is not full.
size_t most_blob_bytes(const pj_config &c, const Shape &shape, int max_selected, int64_t partial_floats) {
    const int64_t per_seq = std::min<int64_t>(c.n_pages, (shape.n_ctx_train + c.page_tokens - 1) / c.page_tokens);
    const int64_t segments = segment_of(static_cast<int>(per_seq * c.page_tokens - 1)) + 1;
    const WideHeads wide(shape);
    const int64_t full_tiles = partial_floats / (kPartialHeader + kWideDim) + int64_t{c.max_rows} * wide.n_query;
    const int64_t attention = full_tiles / 8 + c.max_seqs * wide.n_kv * segments;
    const int samples = std::min(max_selected, most_samples(c));
    const size_t tokens = size_t{PJ_MAX_SAMPLE_TOKENS} * samples;
    return blob_bytes(c.max_rows, c.max_seqs, c.max_seqs * per_seq, attention, shape) +
           sample_bytes({0, samples, tokens, tokens, size_t(samples) * mask_words(shape.n_vocab)}) +
           (c.max_draft ? most_draft_bytes(c.max_rows, c, shape) : 0);
}

CudaEngine::~CudaEngine() { cudaSetDevice(device_.index); }

// The calling thread may be another one than last time.
void CudaEngine::make_current() const { check(cudaSetDevice(device_.index), "opening the GPU"); }

void CudaEngine::start(const pj_step_in &in, pj_step_out &out) {
    begin_ = std::chrono::steady_clock::now();
    make_current();
    check(cudaEventRecord(before_step_, stream_), "starting a step on the GPU");
    wanted_ = wanted_rows(in);
    if (out.argmax) std::fill_n(out.argmax, in.n_rows, -1);
    if (out.sampled) std::fill_n(out.sampled, in.n_rows, -1);
    if (in.kind == PJ_STEP_TRUNK)
        for (int i = 0; i < in.n_seqs; ++i)
            if ((in.seqs[i].flags & PJ_SEQ_RESET) && slot_floats_)
                check(cudaMemsetAsync(state(in.seqs[i].state_slot), 0, state_bytes(), stream_), "resetting a state");
    if (!in.masks_late || !launches_block()) launch(in, wanted_, 0);
    // A copy to memory that is not pinned would wait for the step, and so for masks.
    if (!in.masks_late) start_fetch(in, wanted_, 0, out);
    is_computing_ = true;
}

void CudaEngine::masks_ready(const pj_step_in &in, pj_step_out &out, bool is_ok) {
    if (!launches_block()) {
        if (is_ok) copy_late_masks(in);
        late_masks_.publish();  // before anything that may fail
    }
    make_current();
    if (launches_block()) launch(in, wanted_, 0);
    start_fetch(in, wanted_, 0, out);
}

// To where the GPU reads them: in the order of the launch's samples that have any.
void CudaEngine::copy_late_masks(const pj_step_in &in) {
    int n = 0;
    for (int i = 0; i < samples_.n; ++i)
        if (has_mask(in, samples_.begin + i))
            std::copy_n(in.masks + in.samples[samples_.begin + i].mask_begin, mask_words(shape_.n_vocab),
                        late_masks_.host(n++));
}

void CudaEngine::finish(const pj_step_in &in, pj_step_out &out) {
    is_computing_ = false;  // whatever fails
    make_current();
    fetch(in, wanted_, 0, out);
    for (int first = max_selected_; first < static_cast<int>(wanted_.selected.size()); first += max_selected_) {
        launch(in, wanted_, first);
        start_fetch(in, wanted_, first, out);
        fetch(in, wanted_, first, out);
    }
    if (in.kind == PJ_STEP_TRUNK)
        for (int i = 0; i < in.n_seqs; ++i) pending_[in.seqs[i].state_slot] = in.seqs[i].n_spec;
    const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - begin_;
    out.step_us = us.count();
}

const Program &CudaEngine::program_of(const pj_step_in &in, const WantedRows &wanted, bool first) const {
    if (in.row_next) return wanted.selected.empty() ? programs_.reading : programs_.drafting;
    if (in.kind == PJ_STEP_MTP) return first ? programs_.mtp : programs_.mtp_rest;
    return first ? programs_.trunk : programs_.trunk_rest;
}

// One launch for the selected rows from `first` on; the first one runs the whole model.
void CudaEngine::launch(const pj_step_in &in, const WantedRows &wanted, int first) {
    fill_blob(in, wanted, first);
    n_ops_ = blob_args_->n_ops;
    blob_.send(stream_);
    check(launch_megakernel(device_args_, device_.n_sm, shared_bytes_, stream_), "starting a step on the GPU");
}

void CudaEngine::fill_blob(const pj_step_in &in, const WantedRows &wanted, int first) {
    SequencePlans &plans = plans_;
    plan_sequences(in, base_.shape, {device_.n_sm, most_column_groups(config_.kv_type_k), partial_floats_}, plans);
    const int n_selected = std::min(max_selected_, static_cast<int>(wanted.selected.size()) - first);
    const bool is_late = has_late_masks(in, first);
    samples_ = samples_between(in, wanted, first, n_selected, is_late ? 0 : mask_words(shape_.n_vocab));
    blob_.begin(blob_bytes(in.n_rows, in.n_seqs, in.n_page_entries, plans.attention.size(), shape_) +
                sample_bytes(samples_) + (in.row_next ? most_draft_bytes(in.n_rows, config_, shape_) : 0));
    blob_args_ = blob_.reserve<StepArgs>(2, &device_args_);
    StepArgs &a = blob_args_[0];
    a = base_;
    a.op_clock = op_clock_.data();
    uint32_t *barrier = blob_.reserve<uint32_t>(kBarrierWords, &a.buf.barrier);
    std::fill_n(barrier, kBarrierWords, 0u);
    LaunchOutput *const output = blob_.reserve<LaunchOutput>(1, &device_output_);
    std::fill_n(output->best, kMostSelected, 0ull);
    a.buf.best = device_output_->best;
    a.sampled = device_output_->sampled;

    const int32_t *selected = wanted.selected.data() + first;
    a.n_rows = in.n_rows;
    choose_launch(a);
    a.n_seqs = in.n_seqs;
    a.n_selected = n_selected;
    a.n_logits = std::clamp(wanted.n_logits - first, 0, a.n_selected);
    a.n_hidden = first == 0 ? static_cast<int>(wanted.hidden.size()) : 0;
    const Program &program = program_of(in, wanted, first == 0);
    a.ops = device_ops(program);
    a.n_ops = op_count(in, program, a);
    a.tasks = device_tasks(program);
    a.n_tasks = program.tasks_before(a.n_ops);

    a.row_position = blob_.add(in.row_position, in.n_rows);
    a.row_seq = blob_.add(in.row_seq, in.n_rows);
    a.selected = blob_.add(selected, a.n_selected);
    a.hidden_rows = blob_.add(wanted.hidden.data(), a.n_hidden);
    a.seqs = blob_.add(in.seqs, in.n_seqs);
    a.column_groups = plans.column_groups;
    a.n_convolve_items = plans.n_convolve_items;
    a.n_attention_items = static_cast<int32_t>(plans.attention.size());
    a.plans = blob_.add(plans.plans.data(), in.n_seqs);
    a.attention = blob_.add(plans.attention.data(), plans.attention.size());
    a.page_table = blob_.add(in.page_table, in.n_page_entries);
    if (samples_.n) add_samples(in, wanted, first, a);
    // Only the body of a program reads these.
    if (first == 0) add_rows(in, a);
    drafting_.clear();
    if (in.row_next) add_drafts(in, wanted, blob_args_);
}

// Prompt chunks that want nothing end before the head, steps without samples before the last op.
int CudaEngine::op_count(const pj_step_in &in, const Program &program, const StepArgs &a) const {
    const int n_ops = static_cast<int>(program.ops.size());
    if (in.row_next) {
        if (!a.n_selected) return n_ops;
        int n_passes = 0;
        for (int i = 0; i < in.n_seqs; ++i) n_passes = std::max(n_passes, in.seqs[i].n_draft);
        return n_passes ? program.pass_ends[n_passes - 1] : program.n_keys;
    }
    if (!a.n_selected) return program.n_body + (a.n_hidden ? 1 : 0);
    return n_ops - (samples_.n ? 0 : 1);
}

// Parameters of the rows to sample, with the tokens that each changes.
void CudaEngine::add_samples(const pj_step_in &in, const WantedRows &wanted, int first, StepArgs &a) {
    SampleRow *device_rows;
    pj_token_count *device_counts;
    pj_token_bias *device_biases;
    float *before;
    uint32_t *device_masks;
    SampleRow *rows = blob_.reserve<SampleRow>(samples_.n, &device_rows);
    pj_token_count *counts = blob_.reserve<pj_token_count>(samples_.n_counts, &device_counts);
    pj_token_bias *biases = blob_.reserve<pj_token_bias>(samples_.n_biases, &device_biases);
    blob_.reserve<float>(samples_.n_counts + samples_.n_biases, &before);
    uint32_t *masks = blob_.reserve<uint32_t>(samples_.n_mask_words, &device_masks);
    const int n_words = mask_words(shape_.n_vocab);
    const bool is_late = has_late_masks(in, first);
    if (is_late) a.late_masks = late_masks_.begin();
    int n_late = 0;
    for (int i = 0; i < samples_.n; ++i) {
        const uint32_t *own_masks = in.n_mask_words ? in.masks : nullptr;
        SampleRow row = sample_params(in.samples[samples_.begin + i], shape_.n_vocab, in.counts, in.biases, own_masks);
        row.logits_row = wanted.samples[samples_.begin + i] - first;
        counts = std::copy_n(row.counts, row.n_counts, counts);
        biases = std::copy_n(row.biases, row.n_biases, biases);
        row.counts = device_counts;
        row.biases = device_biases;
        row.before = before;
        device_counts += row.n_counts;
        device_biases += row.n_biases;
        before += row.n_counts + row.n_biases;
        if (row.mask && is_late) {
            row.mask = late_masks_.device(n_late++);
        } else if (row.mask) {
            masks = std::copy_n(row.mask, n_words, masks);
            row.mask = device_masks;
            device_masks += n_words;
        }
        rows[i] = row;
    }
    a.samples = device_rows;
    a.n_samples = samples_.n;
}

// The narrow launch with room for the rows, or the wide one.
void CudaEngine::choose_launch(StepArgs &a) {
    const auto narrow = std::find_if(narrow_.begin(), narrow_.end(),
                                     [&](const Launch &launch) { return launch.row_tiles * 8 >= a.n_rows; });
    a.wide = narrow == narrow_.end();
    const Launch &launch = a.wide ? wide_ : *narrow;
    a.pass_tiles = launch.pass_tiles;
    a.piece_rows = launch.row_tiles * 8;
    a.act_slots = launch.act_slots;
    a.ring_bytes = static_cast<int32_t>(launch.ring_bytes);
    shared_bytes_ = launch.shared_bytes;
}

// Embedding rows, unless the GPU has the table, rotations of the positions and hidden rows.
void CudaEngine::add_rows(const pj_step_in &in, StepArgs &a) {
    const Matrix &table = in.kind == PJ_STEP_MTP ? mtp_embedding_ : embedding_;
    const int64_t n_embd = shape_.n_embd, columns = row_columns(shape_), half = shape_.rope_dim / 2;
    const int64_t stride = row_bytes(*type_traits(table.type), n_embd);
    float *device;
    a.draft.row_token = blob_.add(in.row_token, in.n_rows);
    float *embedding = nullptr;
    if (in.kind == PJ_STEP_MTP || !base_.embeds) {
        embedding = blob_.reserve<float>(in.n_rows * columns, &device);
        a.row_embedding = device;
    }
    float *cos = blob_.reserve<float>(in.n_rows * half, &device);
    a.cos = device;
    float *sin = blob_.reserve<float>(in.n_rows * half, &device);
    a.sin = device;
    for_rows(in.n_rows, [&](int row) {
        if (embedding) {
            dequantize_row(table.type, static_cast<const uint8_t *>(table.data) + in.row_token[row] * stride, n_embd,
                           embedding + row * columns);
            std::fill_n(embedding + row * columns + n_embd, columns - n_embd, 0.0f);
        }
        std::copy_n(rope_.cos(in.row_position[row]), half, cos + row * half);
        std::copy_n(rope_.sin(in.row_position[row]), half, sin + row * half);
    });
    if (in.row_hidden) a.row_hidden = blob_.add(in.row_hidden, in.n_rows * n_embd);
}

// Starts to copy back what a launch computes.
void CudaEngine::start_fetch(const pj_step_in &in, const WantedRows &wanted, int first, pj_step_out &out) {
    const auto copy = [&](void *host, const void *device, size_t bytes) {
        if (bytes) check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_), kReading);
    };
    if (first < static_cast<int>(wanted.selected.size()))
        copy(output_.data(), device_output_, drafting_.empty() ? offsetof(LaunchOutput, tokens) : sizeof(LaunchOutput));
    copy_logits(wanted, first, out, [&](int row) { return (in.row_flags[row] & PJ_ROW_LOGITS) != 0; });
    if (first > 0 || wanted.hidden.empty()) return;
    const size_t row_bytes = shape_.n_embd * sizeof(float), pitch = row_columns(shape_) * sizeof(float);
    check(cudaMemcpy2DAsync(out.hidden, row_bytes, base_.buf.hidden, pitch, row_bytes, wanted.hidden.size(),
                            cudaMemcpyDeviceToHost, stream_),
          kReading);
}

// Waits for it.
void CudaEngine::fetch(const pj_step_in &in, const WantedRows &wanted, int first, pj_step_out &out) {
    const int n = std::min(max_selected_, static_cast<int>(wanted.selected.size()) - first);
    synchronize(kReading);
    if (config_.profile) add_times(program_of(in, wanted, first == 0), n_ops_);
    const LaunchOutput &output = *output_.data();
    if (in.row_next) fetch_drafts(in, out);
    for (int i = 0; i < n; ++i) {
        const int row = wanted.selected[first + i];
        if (in.row_flags[row] & PJ_ROW_ARGMAX) out.argmax[row] = token_of(output.best[i]);
    }
    for (int i = 0; i < samples_.n; ++i)
        out.sampled[wanted.selected[wanted.samples[samples_.begin + i]]] = output.sampled[i];
    const auto is_unsettled = [&](int row) {
        return (in.row_flags[row] & (PJ_ROW_LOGITS | PJ_ROW_SAMPLE)) == PJ_ROW_SAMPLE && out.sampled[row] < 0;
    };
    if (samples_.n && copy_logits(wanted, first, out, is_unsettled)) synchronize(kReading);
}

// Starts to copy the logits of rows of the last launch; false if there are none. Neighbours go together.
template <class Which>
bool CudaEngine::copy_logits(const WantedRows &wanted, int first, pj_step_out &out, const Which &which) const {
    const int end = std::min(first + max_selected_, wanted.n_logits);
    bool any = false;
    for (int i = first; i < end; ++i) {
        const int begin = i;
        while (i < end && which(wanted.selected[i])) ++i;
        if (i == begin) continue;
        any = true;
        check(cudaMemcpyAsync(out.logits + int64_t{begin} * shape_.n_vocab,
                              base_.buf.logits + int64_t{begin - first} * shape_.n_vocab,
                              int64_t{i - begin} * shape_.n_vocab * sizeof(float), cudaMemcpyDeviceToHost, stream_),
              "copying logits from the GPU");
    }
    return any;
}

// Cycles of CTA 0 per kind of op, the wait for the other CTAs included.
void CudaEngine::add_times(const Program &program, int n_ops) {
    std::vector<long long> cycles(n_ops + 3);
    const char *const reading = "reading op times";
    check(cudaMemcpyAsync(cycles.data(), op_clock_.data(), cycles.size() * sizeof(long long), cudaMemcpyDeviceToHost,
                          stream_),
          reading);
    synchronize(reading);
    const double total = static_cast<double>(std::max(1LL, cycles[n_ops - 1] - cycles[n_ops]));
    const double us_per_cycle = 1e-3 * static_cast<double>(cycles[n_ops + 2] - cycles[n_ops + 1]) / total;
    long long before = cycles[n_ops];
    for (int i = 0; i < n_ops; ++i) {
        pj_op_time &time = times_[static_cast<int>(program.ops[i].kind)];
        time.total_us += us_per_cycle * static_cast<double>(cycles[i] - before);
        ++time.calls;
        before = cycles[i];
    }
}

void CudaEngine::info(pj_info &out) const {
    out = {};
    out.weight_bytes = weights_.bytes();
    out.kv_bytes = pool_.bytes();
    out.state_bytes = states_.bytes() + pending_rows_.bytes();
    out.workspace_bytes = workspace_bytes() + blob_.bytes();
    out.device = PJ_DEVICE_CUDA;
    std::snprintf(out.device_name, sizeof out.device_name, "%s", device_.name.c_str());
}

}  // namespace pj::cuda
