// SPDX-License-Identifier: Apache-2.0
// Maximum and sum over a block: shuffles within a warp, one number per warp through shared memory.
#pragma once

__device__ inline float warp_max(float x) {
    for (int lane = 16; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lane));
    return x;
}

__device__ inline float warp_sum(float x) {
    for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(~0u, x, lane);
    return x;
}

__device__ inline float block_max(float x) {
    __shared__ float of_warp[32];
    x = warp_max(x);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = warp_max(threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : -INFINITY);
    __syncthreads();  // of_warp may be used again
    return x;
}

__device__ inline float block_sum(float x) {
    __shared__ float of_warp[32];
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : 0.0f);
    __syncthreads();
    return x;
}
