# SPDX-License-Identifier: Apache-2.0
"""softmax and log_softmax with their gradients."""
