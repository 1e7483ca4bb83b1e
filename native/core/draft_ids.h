// Which token each logit of a row belongs to: all of the vocabulary in order, or the part of it that drafts come from.
//
//     id_of(i)          the token of logit i
//     index_of(token)   the logit of a token; -1: it has none
//     n_logits(n_vocab) length of the row
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/host_device.h"
#include "pyjet.h"

namespace pj {

struct AllIds {
    PJ_HOST_DEVICE int id_of(int index) const { return index; }
    PJ_HOST_DEVICE int index_of(int token) const { return token; }
    PJ_HOST_DEVICE int n_logits(int n_vocab) const { return n_vocab; }
};

// The draft head's: the n_low lowest ids (at most n_vocab), then blocks of PJ_DRAFT_BLOCK ids, none twice and none
// below n_low. Of the vocabulary's last block, ids may be missing: their logits are there but mean nothing.
struct DraftIds {
    int n_low;
    const int32_t *blocks;  // [n_blocks], in any order
    int n_blocks;

    PJ_HOST_DEVICE int id_of(int index) const {
        if (index < n_low) return index;
        const int i = index - n_low;
        return blocks[i / PJ_DRAFT_BLOCK] * PJ_DRAFT_BLOCK + i % PJ_DRAFT_BLOCK;
    }

    PJ_HOST_DEVICE int index_of(int token) const {
        if (token < n_low) return token;
        for (int i = 0; i < n_blocks; ++i)
            if (blocks[i] == token / PJ_DRAFT_BLOCK) return n_low + i * PJ_DRAFT_BLOCK + token % PJ_DRAFT_BLOCK;
        return -1;
    }

    PJ_HOST_DEVICE int n_logits(int) const { return n_low + n_blocks * PJ_DRAFT_BLOCK; }
};

// Ids that the drafts of every step are chosen among.
inline int draft_low_ids(const pj_config &config, int n_vocab) {
    return config.draft_vocab <= 0 ? n_vocab : std::min(config.draft_vocab, n_vocab);
}

// Those of a step that names blocks; where the lowest ids are all that there are, blocks count for nothing.
inline DraftIds draft_ids(const pj_config &config, int n_vocab, const int32_t *blocks, int n_blocks) {
    const int n_low = draft_low_ids(config, n_vocab);
    return {n_low, blocks, n_low < n_vocab ? n_blocks : 0};
}

}  // namespace pj
