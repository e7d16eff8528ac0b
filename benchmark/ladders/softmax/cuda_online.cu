// SPDX-License-Identifier: Apache-2.0
// Maximum and sum in one reading
//
// Each thread keeps the largest value so far and the sum relative to it, and scales the sum when the maximum grows. The
// row is read twice instead of three times: 1.5 passes instead of 2. The price is a second exp for each element, and a
// chain of operations from one iteration to the next that the compiler cannot break up.

#include "../reduce.cuh"

constexpr int THREADS = 256;

__global__ void softmax(const float* x, float* y, long long N) {
    x += blockIdx.x * N;
    y += blockIdx.x * N;
    float largest = -3.4e38f, sum = 0.0f;  // finite: -inf minus -inf is NaN
    for (long long i = threadIdx.x; i < N; i += THREADS) {
        float value = x[i];
        float new_largest = fmaxf(largest, value);
        sum = sum * expf(largest - new_largest) + expf(value - new_largest);
        largest = new_largest;
    }
    float row_max = block_max(largest);
    float row_sum = block_sum(sum * expf(largest - row_max));
    for (long long i = threadIdx.x; i < N; i += THREADS) y[i] = expf(x[i] - row_max) / row_sum;
}

extern "C" int run(const float* x, float* y, long long M, long long N, cudaStream_t stream) {
    softmax<<<M, THREADS, 0, stream>>>(x, y, N);
    return cudaGetLastError();
}
