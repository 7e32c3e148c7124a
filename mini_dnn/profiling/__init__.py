"""NVIDIA's profilers around one variant, and their reports in plain words.

`workload` is the process that they watch; `ncu`, `nsys` and `sanitizer` know one tool each.
"""
