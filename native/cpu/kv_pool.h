// The memory of all KV pages.
//
// A page is page_tokens positions of every attention layer:
//   [layer][K, then V][kv head][position] -> head_dim elements (f16, or q8_0 blocks of 32)
#pragma once

#include <cstdint>
#include <vector>

#include "core/aligned.h"
#include "core/model.h"
#include "pyjet.h"

namespace pj::cpu {

class KvPool {
  public:
    KvPool(const Shape &shape, const pj_config &config, int n_layers);

    uint64_t page_bytes() const { return page_bytes_; }
    uint64_t bytes() const { return memory_.size(); }
    const uint8_t *data() const { return memory_.data(); }

    // Bytes from a page's start to K (V) of a layer and head.
    int64_t k_offset(int layer, int head) const { return layer * layer_bytes_ + head * k_head_bytes_; }
    int64_t v_offset(int layer, int head) const {
        return layer * layer_bytes_ + n_head_kv_ * k_head_bytes_ + head * v_head_bytes_;
    }
    uint8_t *k_row(int page, int layer, int head, int offset) {
        return page_data(page) + k_offset(layer, head) + offset * k_row_bytes_;
    }
    uint8_t *v_row(int page, int layer, int head, int offset) {
        return page_data(page) + v_offset(layer, head) + offset * v_row_bytes_;
    }

    void copy(int from, int to);
    void read(int page, void *host) const;
    void write(int page, const void *host);

  private:
    uint8_t *page_data(int page) { return memory_.data() + page * page_bytes_; }

    int n_head_kv_;
    int64_t k_row_bytes_, v_row_bytes_, k_head_bytes_, v_head_bytes_, layer_bytes_;
    uint64_t page_bytes_;
    AlignedVector<uint8_t> memory_;
};

}  // namespace pj::cpu
