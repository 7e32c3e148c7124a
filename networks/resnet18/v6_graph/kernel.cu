// networks/resnet18/v6_graph: kernels that start before the previous one has ended, and clusters if there are few
// tiles.
//
// Idea      Between two kernels a GPU is idle: the last blocks end, and the next ones start, initialise mbarriers, and
//           wait for their first weights. A launch with early=True starts when all blocks of the previous kernel have
//           started. It initialises its mbarriers and requests weights for all of its stages. Only then does it wait
//           for the data of the previous kernel. A graph removes the host's work for each launch. With few images, a
//           layer has fewer tiles than there are multiprocessors, such as 16 tiles of 64 x 64 with one image in layer
//           3. A cluster of 2, 4 or 8 blocks shares the steps of a tile, so that all multiprocessors read weights.
// Layout    as networks/resnet18/v5_fused, whose kernels it uses.
// Mapping   as there; a cluster of up to 8 blocks -> a tile.
// Roofline  one image: 18 kernels of 3.5 us are 0.065 ms. Each takes 0.5 us for a node of the graph, 1 for the first
//           pixels, 0.5 to 1 for weights at 55 bytes per clock and multiprocessor, and 1 for the sums of a cluster. 64
//           images: as v5_fused.
// Gain      over networks/resnet18/v5_fused: a factor of 2 with one image, and of 1.1 with 64.
// Limits    as networks/resnet18/v5_fused.
// Hazards   An early launch waits before it accesses what other kernels write: the warp that loads waits, and so does
//           each warp that requests a residual. All writes depend on these data. Weights need no wait: they are
//           prepared earlier, and a synchronisation follows.
// Source    PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization".
#include "../v5_fused/kernel.cu"
