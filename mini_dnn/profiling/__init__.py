"""Run one variant under NVIDIA's profilers, and explain their reports.

`workload` is the process that they profile. `ncu` and `nsys` each wrap one tool, and `advice` explains their
figures.
"""
