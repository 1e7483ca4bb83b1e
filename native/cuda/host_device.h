// Functions that the host compiler builds too.
#pragma once

#ifdef __CUDACC__
#define PJ_HOST_DEVICE __host__ __device__
#else
#define PJ_HOST_DEVICE
#endif
