//! The compression function G of RFC 9106, section 3.5.

mod vectors;

use std::arch::x86_64::{
    _MM_HINT_T0, _mm_prefetch, _mm256_add_epi64 as add, _mm256_mul_epu32 as multiply_low_halves,
    _mm256_permute4x64_epi64 as reorder, _mm256_setzero_si256 as zero, _mm256_xor_si256 as xor,
};

use argon2::Block;

use vectors::{
    Vector, WORDS, load, pairs_left_1, pairs_left_2, pairs_left_3, rotate_63, rotate_bytes, store,
};

const VECTORS: usize = 128 / WORDS;
/// Vectors of a row of 16 words.
const ROW: usize = 16 / WORDS;
// Orders of the words of a vector that move them to lower places.
const LEFT_1: i32 = 0b00_11_10_01;
const LEFT_2: i32 = 0b01_00_11_10;
const LEFT_3: i32 = 0b10_01_00_11;
/// Number of cache lines of a block.
const LINES: usize = Block::SIZE / 64;
/// Lines that a call of `mix` requests.
const PART: usize = 2;

/// The blocks that the next call uses: the one that it references, and the one that it writes. They are requested from memory line by
/// line during a call. Requested at once, they are more lines than a core can wait for, so it would stop for a quarter of its time.
#[derive(Clone, Copy)]
pub(crate) struct Upcoming([*const Block; 2]);

impl Upcoming {
    /// The blocks at these positions.
    pub(crate) fn new(blocks: &[Block], positions: [usize; 2]) -> Self {
        Self(positions.map(|position| blocks.as_ptr().wrapping_add(position)))
    }

    /// A block that is in the cache, if no other one is upcoming.
    pub(crate) fn cached(block: &Block) -> Self {
        Self([block; 2])
    }

    /// The addresses of a line, 0 to 15, of both blocks.
    fn line(self, line: usize) -> [*const i8; 2] {
        self.0.map(|block| block.cast::<i8>().wrapping_add(64 * line))
    }

    /// Requests all lines at once.
    pub(crate) fn request(self) {
        for address in (0..LINES).flat_map(|line| self.line(line)) {
            #[expect(unsafe_code, reason = "the function takes a pointer")]
            // SAFETY: the instruction is part of every x86-64 processor, and ignores an address without memory.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(address);
            }
        }
    }
}

/// Writes G of two blocks to a third one. With `true`, the third block becomes its XOR with G, as in all passes but the first. Requests
/// the upcoming blocks from memory meanwhile.
#[target_feature(enable = "avx2")]
pub(crate) fn compress(first: &Block, second: &Block, out: &mut Block, accumulate: bool, upcoming: Upcoming) {
    let (first, second, out) = (first.as_ref(), second.as_ref(), out.as_mut());
    let mut vectors = [zero(); VECTORS];
    for (place, vector) in vectors.iter_mut().enumerate() {
        *vector = xor(load(first, place), load(second, place));
    }
    let mut lines = (0..LINES).step_by(PART);
    let mut requests = || (upcoming, lines.next().unwrap_or_default());
    // Rows. A vector has one of the four rows of the 4x4 matrix of P.
    for vectors in vectors.as_chunks_mut::<16>().0 {
        let rows = |at: usize| [vectors[at], vectors[at + 4], vectors[at + 8], vectors[at + 12]];
        let [mut a, mut b, mut c, mut d] = [rows(0), rows(1), rows(2), rows(3)];
        mix(&mut a, &mut b, &mut c, &mut d, requests());
        for at in 0..4 {
            (b[at], c[at], d[at]) =
                (reorder::<LEFT_1>(b[at]), reorder::<LEFT_2>(c[at]), reorder::<LEFT_3>(d[at]));
        }
        mix(&mut a, &mut b, &mut c, &mut d, requests());
        for at in 0..4 {
            (b[at], c[at], d[at]) =
                (reorder::<LEFT_3>(b[at]), reorder::<LEFT_2>(c[at]), reorder::<LEFT_1>(d[at]));
        }
        let row = |at: usize| [a[at], b[at], c[at], d[at]];
        vectors.copy_from_slice([row(0), row(1), row(2), row(3)].as_flattened());
    }
    // Columns. A row of the matrix is in two vectors, next to those of the neighbouring columns.
    for column in (0..ROW).step_by(2) {
        let four = |at: usize| [vectors[at], vectors[at + ROW], vectors[at + 1], vectors[at + 1 + ROW]];
        let [mut a, mut b] = [four(column), four(column + 2 * ROW)];
        let [mut c, mut d] = [four(column + 4 * ROW), four(column + 6 * ROW)];
        mix(&mut a, &mut b, &mut c, &mut d, requests());
        (b, c, d) = (pairs_left_1(b), pairs_left_2(c), pairs_left_3(d));
        mix(&mut a, &mut b, &mut c, &mut d, requests());
        (b, c, d) = (pairs_left_3(b), pairs_left_2(c), pairs_left_1(d));
        for half in 0..2 {
            let (one, two) = (2 * half, 2 * half + 1);
            // An array, because the compiler does not unroll a chain of iterators, which would take three times as long.
            let results = [a[one], a[two], b[one], b[two], c[one], c[two], d[one], d[two]];
            for (row, result) in results.into_iter().enumerate() {
                let place = column + half + row * ROW;
                let mut result = xor(result, xor(load(first, place), load(second, place)));
                if accumulate {
                    result = xor(result, load(out, place));
                }
                store(out, place, result);
            }
        }
    }
}

/// GB of section 3.6. The four vectors are independent of each other, so the processor computes them at the same time: 20 % faster than
/// two, although some are kept in memory. Requests `PART` lines of the upcoming blocks, beginning with `line`.
#[inline]
#[target_feature(enable = "avx2")]
fn mix(
    a: &mut [Vector; 4],
    b: &mut [Vector; 4],
    c: &mut [Vector; 4],
    d: &mut [Vector; 4],
    (upcoming, line): (Upcoming, usize),
) {
    for at in 0..4 {
        a[at] = sum(a[at], b[at]);
        d[at] = rotate_bytes::<4>(xor(d[at], a[at]));
    }
    a[0] = request(a[0], upcoming.line(line));
    for at in 0..4 {
        c[at] = sum(c[at], d[at]);
        b[at] = rotate_bytes::<3>(xor(b[at], c[at]));
    }
    for at in 0..4 {
        a[at] = sum(a[at], b[at]);
        d[at] = rotate_bytes::<2>(xor(d[at], a[at]));
    }
    a[0] = request(a[0], upcoming.line(line + 1));
    for at in 0..4 {
        c[at] = sum(c[at], d[at]);
        b[at] = rotate_63(xor(b[at], c[at]));
    }
}

/// Requests lines from memory after `v` is computed. Without this dependency, the compiler moves all requests to one place.
#[inline]
#[target_feature(enable = "avx2")]
fn request(v: Vector, [first, second]: [*const i8; 2]) -> Vector {
    let result;
    #[expect(unsafe_code, reason = "the compiler has no instruction that depends on a vector")]
    // SAFETY: the instruction has no effect on registers and memory, and ignores an address without memory.
    unsafe {
        std::arch::asm!(
            "prefetcht0 [{first}] # {v}",
            "prefetcht0 [{second}]",
            first = in(reg) first,
            second = in(reg) second,
            v = inout(ymm_reg) v => result,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    result
}

/// a + b + 2 · (low half of a) · (low half of b).
#[inline]
#[target_feature(enable = "avx2")]
fn sum(a: Vector, b: Vector) -> Vector {
    let product = multiply_low_halves(a, b);
    add(add(a, b), add(product, product))
}
