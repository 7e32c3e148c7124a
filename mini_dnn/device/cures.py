"""The texts of findings: the usual fix for each kind of mistake, and phrases for what was found."""

CURES = {
    "out-of-bounds": "check the index; if it is right, guard the access with the bounds of the array "
    "(if (p < P && q < Q) ...), or make the array large enough for the largest index, including the halo",
    "shared": "check the index; if it is right, make the array large enough for the largest index, including "
    "the halo; an extern __shared__ array has as many bytes as the launch gives it in shared_bytes",
    "32 bits": "compute the index in 64 bits (make one of its factors a long long): this index plus 2^32 "
    "would be in the array, so a product of ints has probably exceeded 2^31",
    "race": "put a __syncthreads() between the two accesses: after a tile is filled and before it is read, "
    "and again before it is overwritten",
    "mbarrier race": "let the thread of the first access arrive at an mbarrier afterwards, and let the other "
    "one wait for this phase before its access; or put a __syncthreads() between the two accesses if all "
    "threads of the block reach it",
    "copy race": "put a __syncthreads() between the two (in a cluster, a cluster_sync()), or let the threads "
    "arrive at an mbarrier when they have used the buffer, and wait for it before the next copy; if they do "
    "so, a thread uses the buffer too early: the parity of its wait for the k-th load is (k / BUFFERS) & 1",
    "warp race": "put a __syncthreads() between the two accesses, or a __syncwarp() if only this warp uses "
    "the array: the lanes of a warp do not run in lockstep; a WMMA store also needs this barrier",
    "same element": "only one thread may write each element: check the index, and check that threads beyond "
    "the end return (if (pixel >= P * Q) return;)",
    "overlap": "put a __syncthreads() between the two accesses if both are meant for this element; "
    "otherwise, two arrays overlap in shared memory: check the start and the size of each, including the "
    "halo",
    "read only": "the read-only cache may not see writes of the same launch: read through a plain pointer "
    "(without __ldg or __restrict__) after a barrier or fence, or write to another buffer",
    "ahead": "call ptx::grid_wait() before the first access of what other launches of the plan use, or "
    "launch the kernel without early=True",
    "same value": "let each thread write its own element (check the index and the grid); if the value is "
    "meant for all of them, let one thread write it (if (threadIdx.x == 0)), or use an atomic (atomicExch, "
    "atomicOr)",
    "cluster race": "put a cluster_sync() between the two accesses: before other blocks use data that a "
    "block has written, and again before the data are overwritten; a relaxed arrival does not order writes: "
    "it only lets a waiting block overwrite data that others have read",
    "block race": "let each block write its own elements (check the grid and the index), "
    "or use atomicAdd to combine the sums of several blocks; to pass a value to another block, write it, "
    "call __threadfence(), and then set a flag with an atomic; the other block waits for the flag; after a "
    "bulk_store or tensor_store, call bulk_wait<0>() first, not bulk_wait_read<0>()",
    "cluster barrier": "let all threads of all blocks of the cluster reach the barrier, outside any branch; "
    "it does not wait for threads that have returned",
    "divergence": "move the barrier out of the branch or loop: threads without work must not return "
    "before it; let them skip the work and still reach every __syncthreads()",
    "warp-mask": "all lanes in the mask must reach the call: move it out of the branch, let lanes "
    "without work pass a zero, and return only after it; the mask must contain exactly the lanes that call",
    "group": "all threads of the group must reach the call: move it out of the branch or loop, let threads "
    "without work pass a zero, and return only after it; or create the group inside the branch from the "
    "threads that are there: coalesced_threads()",
    "tile": "pass the address of the tile's first element and the same leading dimension in all lanes; "
    "WMMA decides which lane moves which element",
    "product": "all four warps of a warpgroup must reach each product, outside any branch, and all their "
    "lanes must pass the same descriptor: compute it from values that they share, not from threadIdx",
    "registers": "all four warps of a warpgroup must reach the same setmaxnreg, outside any branch that "
    "separates them: branch on threadIdx.x / 128",
    "endless": "check that the loop variable changes and that the condition becomes false for every thread; "
    "a thread must wait for other threads of its block at a barrier, not in a loop",
    "uninitialised": "write the element first, in all cases: "
    "let threads outside the image or the tile store 0.0f; if another thread writes it later, wait for that",
    "unset": "initialise it in its declaration (float acc = 0.0f; float acc[4] = {};), or a fragment with "
    "fill_fragment or a load; check that each path to this line sets it",
    "misaligned": "a vector access needs an address that is a multiple of its size: "
    "use it only if the row length is a multiple of the vector length, otherwise access single elements",
    "pitch": "pad the rows of the tile to a multiple of 8 halves or 4 floats",
    "stack": "keep the pointer or index within the variable whose address was passed; a thread can use only "
    "its own local variables, so share values through shared memory or shuffles",
    "after free": "free memory only after its last access by any thread, with a __syncthreads() between them",
    "freed twice": "let exactly one thread free each piece of memory, once",
    "not allocated": "free or delete exactly the pointers that malloc or new returned",
    "no function": "call functions by their names, or by pointers that were set to functions of the kernel "
    "file; virtual functions need an object that its constructor has made",
    "unreachable": "let every path return a value, and check why a thread takes this one",
    "conversion": "keep NaN and numbers outside the range of the integer type away from this conversion, or "
    "use a function such as __float2int_rz(x), whose result is also defined for these numbers and for NaN",
    "shift": "C++ does not define a shift by a negative number, or by as many bits as the type has, or more: "
    "treat these numbers separately, or use a type with more bits",
    "fault": "check how the index, pointer or value on this line is computed",
}

STACK = {
    "another thread": "of the local variables of another thread",
    "no variable": "of its stack where it has no local variables",
    "way back": "beyond the local variables of a function, over its return address",
    "kept": "beyond its local variables, over registers that a function has saved",
}
FREED = {
    "after free": "a thread {verb} {index} of {array}, after they were freed",
    "freed twice": "{array} are freed twice",
    "not allocated": "free or delete of an address that malloc or new did not return",
}
READ_ONLY = {"__ldg": "with __ldg", "const __restrict__": "through a const __restrict__ pointer"}
HARMLESS = "harmless on current GPUs, which keep one of the two values; by the rules of CUDA it is a race"
