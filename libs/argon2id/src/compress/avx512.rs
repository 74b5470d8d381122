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

/// Returns the function if the processor has the instructions.
pub(super) fn compression() -> Option<Compress> {
    #[expect(unsafe_code, reason = "a call of a function that needs instructions")]
    // SAFETY: the function is returned only if the processor has the instructions.
    let compress: Compress =
        |x, y, out, accumulate, upcoming| unsafe { compress(x, y, out, accumulate, upcoming) };
    (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")).then_some(compress)
}

compress_in_vectors!(target_feature(enable = "avx512f,avx512bw"), zmm_reg);

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

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load(words: &[u64], i: usize) -> V {
    let words = &words.as_chunks::<WORDS>().0[i];
    #[expect(unsafe_code, reason = "the function takes a pointer")]
    // SAFETY: the pointer is that of a vector of words, and needs no alignment.
    unsafe {
        _mm512_loadu_si512(words.as_ptr().cast())
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store(words: &mut [u64], i: usize, v: V) {
    let words = &mut words.as_chunks_mut::<WORDS>().0[i];
    #[expect(unsafe_code, reason = "the function takes a pointer")]
    // SAFETY: the pointer is that of a vector of words, and needs no alignment.
    unsafe {
        _mm512_storeu_si512(words.as_mut_ptr().cast(), v);
    }
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
