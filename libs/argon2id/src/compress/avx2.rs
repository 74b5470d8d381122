//! G in vectors of four words.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_alignr_epi8, _mm256_loadu_si256, _mm256_mul_epu32,
    _mm256_permute4x64_epi64, _mm256_set_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

use argon2::Block;

use super::{Compress, LINES, Upcoming};

type V = __m256i;
const WORDS: usize = 4;

compress_in_vectors!(
    ["avx2"],
    target_feature(enable = "avx2"),
    ymm_reg,
    _mm256_loadu_si256,
    _mm256_storeu_si256
);

operations! {
    #[target_feature(enable = "avx2")]
    zero() = _mm256_setzero_si256();
    add(a, b) = _mm256_add_epi64(a, b);
    xor(a, b) = _mm256_xor_si256(a, b);
    /// Products of the low halves.
    multiply(a, b) = _mm256_mul_epu32(a, b);
    rotate_32(a) = rotate_bytes::<4>(a);
    rotate_24(a) = rotate_bytes::<3>(a);
    rotate_16(a) = rotate_bytes::<2>(a);
    rotate_63(a) = xor(_mm256_srli_epi64::<63>(a), add(a, a));
    left_1(a) = _mm256_permute4x64_epi64::<0b00_11_10_01>(a);
    left_2(a) = _mm256_permute4x64_epi64::<0b01_00_11_10>(a);
    left_3(a) = _mm256_permute4x64_epi64::<0b10_01_00_11>(a);
    /// Of each pair of words: the second word of `a` and the first word of `b`.
    middle(a, b) = _mm256_alignr_epi8::<8>(b, a);
}

/// Moves the bytes of each word to lower places.
#[inline]
#[target_feature(enable = "avx2")]
fn rotate_bytes<const BYTES: u32>(a: V) -> V {
    let [first, second] =
        [0x0706_0504_0302_0100_i64, 0x0F0E_0D0C_0B0A_0908].map(|places| places.rotate_right(8 * BYTES));
    _mm256_shuffle_epi8(a, _mm256_set_epi64x(second, first, second, first))
}

/// Four rows of a block as the matrices of four permutations.
#[inline]
#[target_feature(enable = "avx2")]
fn split(q: &[V; 16]) -> [[V; 4]; 4] {
    let rows = |i: usize| [q[i], q[i + 4], q[i + 8], q[i + 12]];
    [rows(0), rows(1), rows(2), rows(3)]
}

/// The inverse of [`split`].
#[inline]
#[target_feature(enable = "avx2")]
fn join([a, b, c, d]: [[V; 4]; 4]) -> [[V; 4]; 4] {
    let row = |i: usize| [a[i], b[i], c[i], d[i]];
    [row(0), row(1), row(2), row(3)]
}
