// Weights<F> of every block format.
#pragma once
#include "cuda/weights/iq.cuh"
#include "cuda/weights/k_quants.cuh"
#include "cuda/weights/legacy.cuh"
#include "cuda/weights/own.cuh"
#include "cuda/weights/packed.cuh"
