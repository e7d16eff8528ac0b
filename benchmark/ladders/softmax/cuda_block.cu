// SPDX-License-Identifier: Apache-2.0
// One block for each row, and a tree in shared memory
//
// 256 threads share a row, so that 4096 rows fill the device. Each thread reduces a contiguous chunk of the row, writes
// its number to shared memory, and the block halves the list eight times, with a barrier after each. There is work for
// everyone now; but neighbouring threads still read addresses that are a chunk apart, so loads stay scattered.

constexpr int THREADS = 256;

template <typename Combine>
__device__ float reduce(float mine, Combine combine) {
    __shared__ float value[THREADS];
    value[threadIdx.x] = mine;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) value[threadIdx.x] = combine(value[threadIdx.x], value[threadIdx.x + half]);
        __syncthreads();
    }
    float result = value[0];
    __syncthreads();
    return result;
}

__global__ void softmax(const float* x, float* y, long long N) {
    x += blockIdx.x * N;
    y += blockIdx.x * N;
    long long chunk = (N + THREADS - 1) / THREADS;
    long long begin = threadIdx.x * chunk, end = min(begin + chunk, N);
    float largest = -INFINITY;
    for (long long i = begin; i < end; i++) largest = fmaxf(largest, x[i]);
    float row_max = reduce(largest, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0.0f;
    for (long long i = begin; i < end; i++) sum += expf(x[i] - row_max);
    float row_sum = reduce(sum, [](float a, float b) { return a + b; });
    for (long long i = begin; i < end; i++) y[i] = expf(x[i] - row_max) / row_sum;
}

extern "C" int run(const float* x, float* y, long long M, long long N, cudaStream_t stream) {
    softmax<<<M, THREADS, 0, stream>>>(x, y, N);
    return cudaGetLastError();
}
