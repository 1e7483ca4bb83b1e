// Functions that host and device share.
#pragma once

#ifdef __CUDACC__
#define PJ_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define PJ_HOST_DEVICE inline
#endif
