#include "cpu/kv_pool.h"

#include <cstring>
#include <new>

#include "core/status.h"

namespace pj::cpu {

namespace {

int64_t row_bytes(int kv_type, int n) { return kv_type == PJ_KV_F16 ? 2 * int64_t{n} : int64_t{n} / 32 * 34; }

}  // namespace

KvPool::KvPool(const Shape &shape, const pj_config &config, int n_layers) : n_head_kv_(shape.n_head_kv) {
    k_row_bytes_ = row_bytes(config.kv_type_k, shape.head_dim);
    v_row_bytes_ = row_bytes(config.kv_type_v, shape.head_dim);
    k_head_bytes_ = k_row_bytes_ * config.page_tokens;
    v_head_bytes_ = v_row_bytes_ * config.page_tokens;
    layer_bytes_ = n_head_kv_ * (k_head_bytes_ + v_head_bytes_);
    page_bytes_ = static_cast<uint64_t>(layer_bytes_) * n_layers;
    try {
        memory_.resize(page_bytes_ * config.n_pages);
    } catch (const std::bad_alloc &) {
        fail(PJ_ERR_MEMORY, "no memory for %d KV pages of %llu bytes; use a smaller context", config.n_pages,
             static_cast<unsigned long long>(page_bytes_));
    }
}

void KvPool::copy(int from, int to) {
    if (from != to) std::memcpy(page_data(to), page_data(from), page_bytes_);
}

void KvPool::read(int page, void *host) const { std::memcpy(host, memory_.data() + page * page_bytes_, page_bytes_); }

void KvPool::write(int page, const void *host) { std::memcpy(page_data(page), host, page_bytes_); }

}  // namespace pj::cpu
