"""Shortened output of NVIDIA's tools."""

STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
RAW = f"""==PROF== Connected to process 4711 (/usr/bin/python3.12)
"ID","Process ID","Kernel Name","Block Size","Grid Size","CC","device__attribute_display_name",\
"gpu__time_duration.sum","dram__bytes_read.sum","dram__bytes_write.sum",\
"dram__throughput.avg.pct_of_peak_sustained_elapsed","sm__throughput.avg.pct_of_peak_sustained_elapsed",\
"l1tex__throughput.avg.pct_of_peak_sustained_active","sm__warps_active.avg.pct_of_peak_sustained_active",\
"sm__maximum_warps_per_active_cycle_pct","launch__occupancy_limit_registers","launch__occupancy_limit_warps",\
"launch__occupancy_limit_shared_mem","launch__registers_per_thread","launch__shared_mem_per_block",\
"sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active","lts__t_sector_hit_rate.pct",\
"{STALL.format("long_scoreboard")}","{STALL.format("barrier")}","{STALL.format("selected")}",\
"{STALL.format("long_scoreboard_pipe_l1tex")}","{STALL.format("barrier_not_issued")}"
"","","","","","","","ns","byte","byte","%","%","%","%","%","block","block","block","register/thread",\
"byte/block","%","%","inst","inst","inst","inst","inst"
"0","4711","unroll","(256, 1, 1)","(25, 49, 1000)","9.0","NVIDIA H200",\
"1,000,000.00","1,000,000,000","2,000,000,000","91.50","30.00","45.00","80.25","100.00","8","8","32","32",\
"1,024","0.00","12.00","30.00","5.00","1.00","30.00","4.00"
"1","4711","gemm(const float *, long long)","(16, 16, 1)","(400000, 1, 1)","9.0","NVIDIA H200",\
"2,500,000.00","1,000,000,000","n/a","20.00","40.00","55.00","40.00","50.00","4","8","8","64",\
"2,048","","88.00","2.00","6.00","1.00","2.00","6.00"
==PROF== Disconnected from process 4711
"""
OLD_UNITS = """"ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum","dram__bytes.sum.per_second","cc"
"","","usecond","Mbyte","Gbyte/second","cycle/nsecond"
"0","conv","1,250.50","3","2.5","1.5"
"""
# A counter that one thread sets; a kernel whose input comes by bulk copies, and whose threads load weights
# alone; the same work by loads of single floats from all over the input.
BULK = f"""\
"ID","Kernel Name","Block Size","Grid Size",\
"gpu__time_duration.sum","dram__bytes_read.sum","dram__bytes_write.sum",\
"dram__throughput.avg.pct_of_peak_sustained_elapsed","sm__throughput.avg.pct_of_peak_sustained_elapsed",\
"launch__waves_per_multiprocessor","launch__thread_count","sm__maximum_warps_per_active_cycle_pct",\
"launch__occupancy_limit_registers","l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",\
"smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio","{STALL.format("long_scoreboard")}"
"","","","","ns","byte","byte","%","%","","thread","%","block","sector","byte/sector","inst"
"0","reset","(1, 1, 1)","(1, 1, 1)",\
"1,600","256","0","0.01","0.00","0.00","1","100.00","32","0","0.00","9.00"
"1","conv","(128, 1, 1)","(480, 1, 1)",\
"260,000","256,000,000","739,840,000","78.00","43.00","1.82","61,440","12.50","2","1,505,280","8.00","2.00"
"2","gather","(128, 1, 1)","(480, 1, 1)",\
"900,000","256,000,000","739,840,000","41.00","43.00","1.82","61,440","12.50","2","152,000,000","8.00","2.00"
"""

MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at gemm+0x160 in kernel.cu:34
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f6510c00001 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f6510c00000 of size 16 bytes
=========
========= Invalid __global__ read of size 4 bytes
=========     at gemm(const float *, int)+0x160 in /home/me/kernel.cu:34
=========     by thread (1,0,0) in block (0,0,0)
=========
========= Invalid __shared__ write of size 4 bytes
=========     at 0x160 in /home/me/my kernels/tile.cuh:7:permute(float*)
=========     by thread (1,0,0) in block (0,0,0)
========= Target application returned an error
========= ERROR SUMMARY: 4 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= ERROR: Potential RAW hazard detected at __shared__ 0x10 in block (0,0,0) :
=========     Write Thread (0,0,0) at gemm(int *)+0x90 in kernel.cu:13
=========     Read Thread (1,0,0) at gemm(int *)+0xa0 in kernel.cu:14
=========     Current Value : 1, Incoming Value : 2
=========
========= Error: Race reported between Write access at gemm(int *)+0x90 in kernel.cu:13
=========     and Read access at gemm(int *)+0xa0 in kernel.cu:14 [2048 hazards]
=========
========= Warning: Maximum number of barriers reached. An environment variable can raise it.
========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)
"""
SYNCCHECK = """========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at gemm(int*)+0xb0 in kernel.cu:17
=========     by thread (32,0,0) in block (0,0,0)
========= ERROR SUMMARY: 1 error
"""
INITCHECK = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at permute(int *)+0x70 in kernel.cu:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"

NSYS = {
    "cuda_gpu_kern_sum": """Processing [timeline.sqlite] with [cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
25.0,500000,1,500000.0,500000.0,500000,500000,0.0,permute
75.0,"1,500,000",2,750000.0,750000.0,500000,1000000,0.0,"gemm(const float *, int)"
""",
    "cuda_gpu_mem_time_sum": """
Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
100.0,8000000,3,1,1,1,1,0,[CUDA memcpy Device-to-Host]
""",
    "cuda_api_sum": "SKIPPED: timeline.sqlite does not contain CUDA trace data.\n",
}
