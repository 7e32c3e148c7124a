"""NVIDIA's profilers around one variant, and their reports in plain words.

`workload` is the process that they watch. `ncu` and `nsys` know one tool each, and `advice` says what their
figures mean.
"""
