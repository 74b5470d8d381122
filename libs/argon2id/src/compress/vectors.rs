//! Vectors of four words, with AVX2.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_alignr_epi8, _mm256_loadu_si256, _mm256_set_epi64x,
    _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

pub(super) type Vector = __m256i;
pub(super) const WORDS: usize = 4;

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(words: &[u64], i: usize) -> Vector {
    let words = &words.as_chunks::<WORDS>().0[i];
    #[expect(unsafe_code, reason = "the function takes a pointer")]
    // SAFETY: the pointer is that of a vector of words, and needs no alignment.
    unsafe {
        _mm256_loadu_si256(words.as_ptr().cast())
    }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store(words: &mut [u64], i: usize, v: Vector) {
    let words = &mut words.as_chunks_mut::<WORDS>().0[i];
    #[expect(unsafe_code, reason = "the function takes a pointer")]
    // SAFETY: the pointer is that of a vector of words, and needs no alignment.
    unsafe {
        _mm256_storeu_si256(words.as_mut_ptr().cast(), v);
    }
}

/// Moves the bytes of each word to lower places.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn rotate_bytes<const BYTES: u32>(a: Vector) -> Vector {
    let [first, second] =
        [0x0706_0504_0302_0100_i64, 0x0F0E_0D0C_0B0A_0908].map(|places| places.rotate_right(8 * BYTES));
    _mm256_shuffle_epi8(a, _mm256_set_epi64x(second, first, second, first))
}

/// Moves the bits of each word to lower places.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn rotate_63(a: Vector) -> Vector {
    _mm256_xor_si256(_mm256_srli_epi64::<63>(a), _mm256_add_epi64(a, a))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn pairs_left_1(v: [Vector; 4]) -> [Vector; 4] {
    [middle(v[0], v[1]), middle(v[1], v[0]), middle(v[2], v[3]), middle(v[3], v[2])]
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn pairs_left_2(v: [Vector; 4]) -> [Vector; 4] {
    [v[1], v[0], v[3], v[2]]
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn pairs_left_3(v: [Vector; 4]) -> [Vector; 4] {
    [middle(v[1], v[0]), middle(v[0], v[1]), middle(v[3], v[2]), middle(v[2], v[3])]
}

/// Of each pair of words: the second word of `a` and the first word of `b`.
#[inline]
#[target_feature(enable = "avx2")]
fn middle(a: Vector, b: Vector) -> Vector {
    _mm256_alignr_epi8::<8>(b, a)
}
