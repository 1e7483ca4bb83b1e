// Vectors whose data starts at a cache line: a 64-byte load from there never touches two lines.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace pj {

template <class T>
struct CacheLineAllocator {
    using value_type = T;
    static constexpr std::align_val_t kAlignment{64};

    CacheLineAllocator() = default;
    template <class U>
    CacheLineAllocator(const CacheLineAllocator<U> &) {}

    T *allocate(std::size_t n) { return static_cast<T *>(::operator new(n * sizeof(T), kAlignment)); }
    void deallocate(T *p, std::size_t) { ::operator delete(p, kAlignment); }

    bool operator==(const CacheLineAllocator &) const { return true; }
    bool operator!=(const CacheLineAllocator &) const { return false; }
};

template <class T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

}  // namespace pj
