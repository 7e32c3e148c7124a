"""The code of a kernel file without its comments and white space, which do not change what it does."""

import pytest

from mini_dnn.device.code_hash import cpp_code


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int a=b; // c", "int  a = b;"),
        ("f(a,\n  b) {\n}", "f(a, b){ }"),
        ("a /* b\n c */ + d", "a + d"),
        ("a // b \\\n c\n+ d", "a + d"),
        ("#define A 1 // one\nx", "#define  A  1\n\n\nx"),
        ("#define A 1 /* one\n two */ + 1\nx", "#define A 1 + 1\nx"),
        ("#define A \\\n  1\nx", "#define A 1\nx"),
        ("// a /* b\nx", "x // c */"),
        ('"a" // "', '"a"'),
        ("\r\nx\r\n", "x"),
    ],
)
def test_the_same_code(one: str, other: str) -> None:
    assert cpp_code(one) == cpp_code(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a + +b", "a ++b"),
        ("int a", "inta"),
        ('"a  b"', '"a b"'),
        ('"// a"', '"// b"'),
        (R'"\"// a"', R'"\"// b"'),
        ("'\"' // a\"", "'\"' b"),
        ("1'0 + '/' /a", "1'0 + '/' /b"),
        ('R"x(" // a)x"', 'R"x(" // b)x"'),
        ('R"(a\n\nb)"', 'R"(a\nb)"'),
        ("#define A (x)", "#define A(x)"),
        ("#define A x\ny", "#define A x y"),
        ("#pragma unroll\nfor", "for"),
        ("x + # y", "x +\n# y"),
    ],
)
def test_other_code(one: str, other: str) -> None:
    assert cpp_code(one) != cpp_code(other)
