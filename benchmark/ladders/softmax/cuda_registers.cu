// SPDX-License-Identifier: Apache-2.0
// The row stays in registers
//
// Each thread loads its vectors once, into an array that the compiler keeps in registers because every index is known
// when it compiles; all loads are under way before the first is needed. Maximum, sum and result come from there: the
// row is read once, 1 pass instead of 1.5, and each element takes one exp. The number of threads follows the row, so
// that short rows leave no thread idle. N must be a multiple of 4 and at most 32768: 8 vectors for each of 1024
// threads.

#include "../reduce.cuh"

template <int VECTORS>
__global__ void __launch_bounds__(1024) softmax(const float4* x, float4* y, int vectors) {
    x += blockIdx.x * (long long)vectors;
    y += blockIdx.x * (long long)vectors;
    float4 v[VECTORS];
    float largest = -INFINITY;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * blockDim.x;
        v[j] = i < vectors ? x[i] : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    }
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
        largest = fmaxf(fmaxf(fmaxf(v[j].x, v[j].y), fmaxf(v[j].z, v[j].w)), largest);
    float row_max = block_max(largest);
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        v[j] = make_float4(__expf(v[j].x - row_max), __expf(v[j].y - row_max), __expf(v[j].z - row_max),
                           __expf(v[j].w - row_max));
        sum += v[j].x + v[j].y + v[j].z + v[j].w;
    }
    float scale = 1.0f / block_sum(sum);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        int i = threadIdx.x + j * blockDim.x;
        if (i < vectors) y[i] = make_float4(v[j].x * scale, v[j].y * scale, v[j].z * scale, v[j].w * scale);
    }
}

template <int VECTORS>
void launch(const float4* x, float4* y, long long M, int vectors, cudaStream_t stream) {
    int threads = (vectors + 32 * VECTORS - 1) / (32 * VECTORS) * 32;
    softmax<VECTORS><<<M, threads, 0, stream>>>(x, y, vectors);
}

extern "C" int run(const float4* x, float4* y, long long M, long long N, cudaStream_t stream) {
    int vectors = N / 4;
    if (vectors <= 128) launch<1>(x, y, M, vectors, stream);
    else if (vectors <= 512) launch<2>(x, y, M, vectors, stream);
    else if (vectors <= 2048) launch<4>(x, y, M, vectors, stream);
    else launch<8>(x, y, M, vectors, stream);
    return cudaGetLastError();
}
