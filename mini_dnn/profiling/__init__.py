"""NVIDIA's profilers and checkers around one variant's convolutions, and their reports in plain words.

`workload` is the process that they watch; `ncu`, `nsys` and `sanitizer` know one tool each.
"""
