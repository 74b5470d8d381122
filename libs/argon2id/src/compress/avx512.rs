//! G in vectors of eight words.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_alignr_epi8, _mm512_loadu_si512, _mm512_mul_epu32,
    _mm512_permutex_epi64, _mm512_ror_epi64, _mm512_setzero_si512, _mm512_shuffle_i64x2, _mm512_storeu_si512,
    _mm512_xor_si512,
};

use argon2::Block;

use super::{Compress, LINES, Upcoming};

type V = __m512i;
const WORDS: usize = 8;

compress_in_vectors!(
    ["avx512f" "avx512bw"],
    target_feature(enable = "avx512f,avx512bw"),
    zmm_reg,
    _mm512_loadu_si512,
    _mm512_storeu_si512
);

operations! {
    #[target_feature(enable = "avx512f,avx512bw")]
    zero() = _mm512_setzero_si512();
    add(a, b) = _mm512_add_epi64(a, b);
    xor(a, b) = _mm512_xor_si512(a, b);
    /// Products of the low halves.
    multiply(a, b) = _mm512_mul_epu32(a, b);
    rotate_32(a) = _mm512_ror_epi64::<32>(a);
    rotate_24(a) = _mm512_ror_epi64::<24>(a);
    rotate_16(a) = _mm512_ror_epi64::<16>(a);
    rotate_63(a) = _mm512_ror_epi64::<63>(a);
    left_1(a) = _mm512_permutex_epi64::<0b00_11_10_01>(a);
    left_2(a) = _mm512_permutex_epi64::<0b01_00_11_10>(a);
    left_3(a) = _mm512_permutex_epi64::<0b10_01_00_11>(a);
    /// Of each pair of words: the second word of `a` and the first word of `b`.
    middle(a, b) = _mm512_alignr_epi8::<8>(b, a);
    /// The low halves of two vectors.
    low(a, b) = _mm512_shuffle_i64x2::<0b01_00_01_00>(a, b);
    /// The high halves of two vectors.
    high(a, b) = _mm512_shuffle_i64x2::<0b11_10_11_10>(a, b);
}

/// Eight rows of a block as the matrices of eight permutations, two in a vector.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn split(q: &[V; 16]) -> [[V; 4]; 4] {
    let lows = |i: usize| {
        [low(q[i], q[i + 2]), low(q[i + 4], q[i + 6]), low(q[i + 8], q[i + 10]), low(q[i + 12], q[i + 14])]
    };
    let highs = |i: usize| {
        [
            high(q[i], q[i + 2]),
            high(q[i + 4], q[i + 6]),
            high(q[i + 8], q[i + 10]),
            high(q[i + 12], q[i + 14]),
        ]
    };
    [lows(0), highs(0), lows(1), highs(1)]
}

/// The inverse of [`split`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn join([a, b, c, d]: [[V; 4]; 4]) -> [[V; 4]; 4] {
    let rows = |i: usize| [low(a[i], b[i]), low(c[i], d[i]), high(a[i], b[i]), high(c[i], d[i])];
    [rows(0), rows(1), rows(2), rows(3)]
}
