// The part of the vocabulary that the draft head scores: the ids below n_low, then blocks of PJ_DRAFT_BLOCK ids.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/host_device.h"
#include "pyjet.h"

namespace pj {

struct DraftIds {
    int32_t n_low;
    const int32_t *blocks;
    int32_t n_blocks;

    PJ_HOST_DEVICE int n_ids() const { return n_low + n_blocks * PJ_DRAFT_BLOCK; }

    // The last block of a vocabulary may reach beyond it.
    PJ_HOST_DEVICE int id_of(int index) const {
        if (index < n_low) return index;
        const int i = index - n_low;
        return blocks[i / PJ_DRAFT_BLOCK] * PJ_DRAFT_BLOCK + i % PJ_DRAFT_BLOCK;
    }

    // -1: not among them.
    PJ_HOST_DEVICE int index_of(int token) const {
        if (token < n_low) return token;
        for (int b = 0; b < n_blocks; ++b)
            if (blocks[b] == token / PJ_DRAFT_BLOCK) return n_low + b * PJ_DRAFT_BLOCK + token % PJ_DRAFT_BLOCK;
        return -1;
    }
};

// Ids that every step's drafts are chosen among.
inline int draft_low_ids(const pj_config &config, int n_vocab) {
    return config.draft_vocab <= 0 ? n_vocab : std::min(config.draft_vocab, n_vocab);
}

}  // namespace pj
