"""Calls by pointers, and functions that return structures, in kernels that the grader judges."""

# ruff: noqa: E501
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from judged_kernels import ALONE, judged, launched, needs_x86_64

from mini_dnn.device.emulator.checked import KernelError

pytestmark = needs_x86_64

SHAPES = (
    "struct A { int k = 1; __device__ virtual float f(float a) const { return a + k; } };\n"
    "struct B : A { __device__ float f(float a) const override { return 20 * (a + 1); } };\n"
)
RETURNS = (
    "struct P { float a[24]; };\n" + ALONE + " __device__ P f(float s) { return {{s, s, s, s + 5, s, s}}; }\n"
)
FUNCTIONS = (
    "__device__ float up(float a) { return a + 1; }\n__device__ float down(float a) { return a - 1; }\n"
)
WRITES = ALONE + " __device__ void g(long* p, long at, long to) { p[at] = to; }\n"
HONEST = {  # and the value of x[0] afterwards, with n = 3
    "virtual functions of an unknown class": (
        SHAPES,
        "A a; B b; const A* p = n & 1 ? &b : &a; x[i] = p->f(x[i])",
        20,
    ),
    "virtual functions of objects in an array": (
        "struct Op { __device__ virtual float apply(float) = 0; };\n"
        "struct Add : Op { float by; __device__ Add(float b) : by(b) {} __device__ float apply(float a) override { return a + by; } };\n"
        "struct Mul : Op { __device__ float apply(float a) override { return a * 2; } };\n"
        "__device__ float all(Op** ops, int n, float a) { for (int j = 0; j < n; j++) a = ops[j]->apply(a); return a; }",
        "Add p(1), q(3); Mul m; Op* ops[3] = {&p, &m, &q}; x[i] = all(ops, n, x[i])",
        5,
    ),
    "virtual functions of an object on the heap": (
        SHAPES
        + "struct C : A { __device__ virtual ~C() {} __device__ float f(float a) const override { return 7; } };",
        "A* p = n & 1 ? (A*)new C : (A*)new B; x[i] = p->f(x[i])",
        7,
    ),
    "virtual functions that return structures": (
        RETURNS
        + "struct A { __device__ virtual P get(float a) const = 0; __device__ virtual float f() const { return 2; } };\n"
        "struct B : A { __device__ P get(float a) const override { return f(a); } };\n".replace(
            "return f(", "return ::f("
        )
        + "struct C : A { __device__ P get(float a) const override { return {{a, 1, 2, 3}}; } };",
        "B b; C c; const A* p = n & 1 ? (const A*)&b : &c; x[i] = p->get(x[i]).a[n] + p->f()",
        7,
    ),
    "two bases": (
        "struct A { int k = 1; __device__ virtual float f() { return k; } };\n"
        "struct B { int l = 2; __device__ virtual float g() { return l; } };\n"
        "struct C : A, B { __device__ float g() override { return k + l; } };",
        "C c; B b; B* p = n & 1 ? &c : &b; x[i] = p->g()",
        3,
    ),
    "a local table": (FUNCTIONS, "float (*t[2])(float) = {down, up}; x[i] = t[n & 1](x[i])", 1),
    "a function as an argument": (
        FUNCTIONS + ALONE + " __device__ float twice(float (*f)(float), float a) { return f(f(a)); }",
        "x[i] = twice(n & 1 ? up : down, x[i])",
        2,
    ),
    "a pointer to a member": (
        "struct M { float v; __device__ float get() { return v; } __device__ float half() { return v / 2; } };",
        "M m = {8}; float (M::*f)() = n & 1 ? &M::half : &M::get; x[i] = (m.*f)()",
        4,
    ),
    "a structure by a recursion": (
        "struct P { float a[6]; };\n"
        "__device__ P f(int n) { if (n == 0) return {}; P p = f(n - 1); p.a[n % 6] += n; return p; }",
        "x[i] = f(n).a[n % 6]",
        3,
    ),
    "a structure after a call": (
        "struct P { float a[6]; };\n"
        + ALONE
        + " __device__ float g(float s) { return s + 1; }\n"
        + ALONE
        + " __device__ P f(float s, float* x) { P p = {}; const float t = g(s); x[0] += t; p.a[3] = t; return p; }",
        "x[i] = f(4, x).a[n % 6]",
        5,
    ),
    "structures that are cleared": (
        "struct P { float a[100]; int k; };",
        "__shared__ P s[2]; s[n & 1] = {}; s[0] = P{{1}}; ((P*)x)[n] = P{}; ((P*)x)[2] = s[0]; x[i] = s[1].a[n] + s[0].a[0]",
        1,
    ),
    "a structure of zeros to a structure in memory": (
        "struct P { float a[24]; };\n"
        "__device__ P f(int n) { if (n < 1) return {{1, 2, 3}}; P p = f(n - 1); p.a[n] += 1; return p; }",
        "((P*)x)[2] = f(n); x[i] = x[50] + x[51]",
        5,
    ),
    "an end that is not reached": (
        ALONE
        + " __device__ void g(float* p) { *p = 1; }\n"
        + ALONE
        + " __device__ void f(float* p, int k) { if (k < 4) { *p = k; return; } g(p); __builtin_unreachable(); }",
        "f(x + i, n)",
        3,
    ),
    "a structure after a call, with aligned variables": (
        "struct P { float a[6]; };\n"
        "__device__ P f(float* x, int n) {\n  if (n == 0) return {};\n  alignas(64) float b[16] = {};\n"
        "  for (int j = 0; j < 16; j++) b[j] = x[j] + n;\n  P p = f(x, n - 1);\n  p.a[n % 6] += b[n & 15];\n  return p;\n}",
        "x[i] = f(x, n).a[n % 6]",
        3,
    ),
    "a structure by value, changed by a recursion": (
        "struct P { float a[6]; };\n"
        "__device__ P f(P p, int n) { p.a[0] += n; if (n == 0) return p; P q = f(p, n - 1); q.a[1] += 1; return q; }",
        "P p = {}; p = f(p, n); x[i] = p.a[0] + p.a[1]",
        9,
    ),
    "rays that are followed": (
        "struct V { float x, y, z; };\nstruct Hit { V at, color; float t; int id; };\nstruct Ray { V from, to; };\n"
        "__device__ V add(V a, V b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }\n"
        "__device__ Hit trace(const Ray& r, const float* s, int n, int depth, int seed) {\n"
        "  Hit best = {r.from, r.to, 1e9f, -1};\n"
        "  for (int j = 0; j < n; j++) { const float b = s[j * 4] * r.to.x + seed; if (b < best.t) { best.t = b; best.id = j; best.at = add(r.from, r.to); } }\n"
        "  if (depth > 0 && best.id >= 0) {\n"
        "    Hit h = trace({best.at, {r.to.y, r.to.x, r.to.z}}, s, n, depth - 1, seed * 3 + best.id), g = trace({h.at, h.color}, s, n, depth - 2, seed + h.id);\n"
        "    best.color = add(best.color, add(h.color, g.color));\n"
        "  }\n  return best;\n}",
        "x[i] = trace({{1, 2, 3}, {1, 0, 0}}, x, n, 2, i).color.x",
        5,
    ),
}
WILD = {  # the machine code does not forbid these, so checked mode has to find them
    "a function's middle": (
        ALONE + " void f(float* p) { *p += 1; }",
        "((void (*)(float*))((char*)(void*)&f + 12 + (n & 1)))(x + i)",
    ),
    "a call by a number": ("", "((void (*)(float*))(size_t)n)(x + i)"),
    "an end that is reached": (
        ALONE
        + " void g(float* p) { *p = 1; }\n"
        + ALONE
        + " void f(float* p, int k) { if (k > 4) { *p = k; return; } g(p); __builtin_unreachable(); }",
        "f(x + i, n)",
    ),
    "an object with another table": (
        "struct A { virtual void f(float* p) { *p = 1; } };\nstruct B : A { int k; void f(float* p) override { p[1] = k; } };",
        "B b; b.k = n; void* t[4] = {x, x, x}; void** p = t; memcpy((void*)&b, &p, 8); A* a = &b; a->f(x)",
    ),
    "a pointer to a member that is none": (
        "struct A { float k; float f() { return k; } };",
        "float (A::*p)() = &A::f; long v[2] = {(long)x, 0}; memcpy(&p, v, 16); A a = {1}; x[i] = (a.*p)()",
    ),
    "a virtual function of one's own": (
        "struct V { virtual void f() {} };",
        "void* t[3] = {x, x, x}; V* v = (V*)malloc(8); *(void***)v = t; v->f()",
    ),
    "a returned structure, by a table": (
        RETURNS + "using F = void (*)(float*, float);\n__device__ void h(float* p, float a) { *p = a; }\n"
        "__device__ const F table[] = {h, (F)f};",
        "table[n & 1](x + 4090, 1.0f)",
    ),
    "over a saved register": (WRITES, "long own = 0; g(&own, -n - 1, (long)x); x[i] = own"),
}
PLACES = (  # a function that keeps the address of its result on the stack while it calls another function
    "struct P { float a[6]; };\n"
    + WRITES
    + ALONE
    + " __device__ P f(float* x, long at, long to, int a, int b, int c, int d) {\n"
    "  ALIGNED long own[8] = {}; float s = 0;\n  for (int j = 0; j < a; j++) s += x[j * b] * c + d;\n  g(own, at, to);\n"
    "  for (int j = 0; j < a; j++) s += x[j * b] * c + d + at + to;\n  return {{s, s, s, 1, 2, s}};\n}\n"
)


@pytest.mark.parametrize("name", HONEST)
def test_nobody_honest_is_refused(name: str, tmp_path: Path) -> None:
    before, use, expected = HONEST[name]
    judged(before, use, tmp_path)
    assert launched(tmp_path)[0] == expected


@pytest.mark.parametrize("name", WILD)
def test_where_a_call_leads_is_looked_at(name: str, tmp_path: Path) -> None:
    judged(*WILD[name], tmp_path)
    with pytest.raises(
        KernelError,
        match=r"(fault: __builtin_unreachable|out-of-bounds: call by a pointer that leads to no function|a thread writes 8 bytes beyond its|write of x\[4096\])",
    ):
        launched(tmp_path)


@pytest.mark.parametrize("aligned", ["", pytest.param("alignas(64)", marks=pytest.mark.exhaustive)])
def test_the_place_of_a_result_stays_what_it_was(aligned: str, tmp_path: Path) -> None:
    """This holds wherever a called function writes: to a variable, or not at all."""
    judged(
        f"#define ALIGNED {aligned}\n{PLACES}",
        "x[i] = f(x, n - 30, (long)(x + 100), 2, 2, 3, 4).a[3]",
        tmp_path,
    )
    told = 0
    for n in range(15, 45):
        try:
            left = launched(tmp_path, n)
        except KernelError as error:
            told += "registers that a function has saved" in error.finding.what
        else:
            assert np.flatnonzero(left).tolist() == [0]
    assert told > 3
