// Tensor-core products of a warpgroup (four warps), sm_90a: 64 outputs x 32 inputs from registers times
// quantised rows in shared memory. PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/tiles.h"

namespace pj::cuda {

// Whether this compilation's cards have them.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool kWarpgroups = true;
#else
constexpr bool kWarpgroups = false;
#endif

constexpr int kWarpgroupTiles = 8;  // row tiles of activations of a product

// Descriptors of rows of 32 bytes, swizzled by 32 bytes, of row tiles one ActTile apart; from: shared address of the
// first tile's, a multiple of 256.
struct RowsDescriptor {
    uint32_t low;

    // The compiler has to know that it is the same for all lanes, or every product finds that out.
    __device__ __forceinline__ explicit RowsDescriptor(uint32_t from)
        : low(__shfl_sync(~0u, 1u << 16 | (from & 0x3ffffu) >> 4, 0)) {}  // leading dimension: 1
    // Of what lies so many bytes behind the first tile.
    __device__ __forceinline__ uint64_t at(int bytes) const {
        constexpr uint32_t kSwizzle32 = 3u << 30, kStride = sizeof(ActTile) / 16;
        return uint64_t{kSwizzle32 | kStride} << 32 | (low + bytes / 16);
    }
    __device__ __forceinline__ uint64_t block(int b) const { return at(b * static_cast<int>(sizeof(ActTile::q[0]))); }
    __device__ __forceinline__ uint64_t sums() const { return at(offsetof(ActTile, sums)); }
};

// Registers that were written are seen by the products behind it.
__device__ __forceinline__ void warpgroup_fence() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void warpgroup_commit() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

// Until all products are done but those of the last kGroups commits.
template <int kGroups>
__device__ __forceinline__ void warpgroup_wait() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
#endif
}

#define PJ_REGISTERS(kind)                                                                                       \
    kind(c[0][0]), kind(c[0][1]), kind(c[0][2]), kind(c[0][3]), kind(c[1][0]), kind(c[1][1]), kind(c[1][2]),     \
        kind(c[1][3]), kind(c[2][0]), kind(c[2][1]), kind(c[2][2]), kind(c[2][3]), kind(c[3][0]), kind(c[3][1]), \
        kind(c[3][2]), kind(c[3][3]), kind(c[4][0]), kind(c[4][1]), kind(c[4][2]), kind(c[4][3]), kind(c[5][0]), \
        kind(c[5][1]), kind(c[5][2]), kind(c[5][3]), kind(c[6][0]), kind(c[6][1]), kind(c[6][2]), kind(c[6][3]), \
        kind(c[7][0]), kind(c[7][1]), kind(c[7][2]), kind(c[7][3])
#define PJ_OPERANDS                                                                                               \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
    "%29,%30,%31},{%32,%33,%34,%35},%36"

// The compiler must not move what it keeps in these registers across the products.
__device__ __forceinline__ void warpgroup_hold(int (&c)[kWarpgroupTiles][4]) { asm volatile("" : PJ_REGISTERS("+r")); }
__device__ __forceinline__ void warpgroup_hold(float (&c)[kWarpgroupTiles][4]) {
    asm volatile("" : PJ_REGISTERS("+f"));
}

#define PJ_WGMMA(a_type)                                                                   \
    asm volatile(                                                                          \
        "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"                                   \
        "wgmma.mma_async.sync.aligned.m64n64k32.s32." a_type ".s8 " PJ_OPERANDS ",add;\n}" \
        : PJ_REGISTERS("+r")                                                               \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows), "r"(static_cast<int>(add)))

// c = a b, or c += a b. kSigned: whether the bytes of a have a sign; those of the activations have one.
template <bool kSigned>
__device__ __forceinline__ void warpgroup_multiply(int (&c)[kWarpgroupTiles][4], const uint32_t (&a)[4], uint64_t rows,
                                                   bool add) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (kSigned)
        PJ_WGMMA("s8");
    else
        PJ_WGMMA("u8");
#endif
}

// c = a b of halves, 16 inputs.
__device__ __forceinline__ void warpgroup_multiply_halves(float (&c)[kWarpgroupTiles][4], const uint32_t (&a)[4],
                                                          uint64_t rows) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " PJ_OPERANDS ",add,1,1,0;\n}"
        : PJ_REGISTERS("+f")
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows));
#endif
}

#undef PJ_WGMMA
#undef PJ_OPERANDS
#undef PJ_REGISTERS

}  // namespace pj::cuda
