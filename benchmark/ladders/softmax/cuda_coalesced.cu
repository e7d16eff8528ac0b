// SPDX-License-Identifier: Apache-2.0
// Neighbouring threads read neighbouring elements; warps reduce by shuffles
//
// Thread t takes elements t, t + 256, t + 512 and so on: the 32 loads of a warp are 128 contiguous bytes, four sectors
// instead of 32. Within a warp numbers go from register to register by shuffles, without a barrier; only one number of
// each warp goes through shared memory. The bytes asked for are the same, still three readings (2 passes), but each
// request to the cache now carries eight times as many of them.

#include "../reduce.cuh"

constexpr int THREADS = 256;

__global__ void softmax(const float* x, float* y, long long N) {
    x += blockIdx.x * N;
    y += blockIdx.x * N;
    float largest = -INFINITY;
    for (long long i = threadIdx.x; i < N; i += THREADS) largest = fmaxf(largest, x[i]);
    float row_max = block_max(largest);
    float sum = 0.0f;
    for (long long i = threadIdx.x; i < N; i += THREADS) sum += expf(x[i] - row_max);
    float row_sum = block_sum(sum);
    for (long long i = threadIdx.x; i < N; i += THREADS) y[i] = expf(x[i] - row_max) / row_sum;
}

extern "C" int run(const float* x, float* y, long long M, long long N, cudaStream_t stream) {
    softmax<<<M, THREADS, 0, stream>>>(x, y, N);
    return cudaGetLastError();
}
