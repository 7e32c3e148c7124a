// networks/resnet18/v6_graph: kernels that begin before the one ahead has ended, and clusters where tiles are few.
//
// Idea      Between two kernels a GPU stands still: the last blocks end, the next ones start, set up mbarriers, and
//           wait for their first weights. A launch with early=True starts when all blocks of the kernel ahead have
//           started; it sets up and asks for as many weights as there are stages, and only then waits for what the
//           other writes. A graph takes away what the host does for each launch. With few images a layer has fewer
//           tiles than there are multiprocessors: 16 of 64 x 64 with one image in layer 3. A cluster of 2, 4 or 8
//           blocks shares the steps of a tile, so that all multiprocessors read weights.
// Layout    as networks/resnet18/v5_fused, whose kernels these are.
// Mapping   as there; a cluster of up to 8 blocks -> a tile.
// Roofline  one image: 18 kernels of 3.5 us, of which 0.5 a node of the graph, 1 the way of the first pixels, 0.5 to 1
//           weights at 55 bytes a clock of a multiprocessor, 1 sums of a cluster: 0.065 ms. 64 images as v5_fused.
// Gain      over networks/resnet18/v5_fused: 2 with one image, a tenth with 64.
// Limits    as networks/resnet18/v5_fused.
// Hazards   Who is launched early waits before it reads or writes what other kernels write: the warp that loads, each
//           warp that asks for a residual, and by way of the data all that is written. Nobody waits for weights: they
//           are set up before, with a synchronisation.
// Source    PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization".
#include "../v5_fused/kernel.cu"
