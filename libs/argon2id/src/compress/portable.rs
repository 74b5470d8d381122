//! G without vector instructions.

use argon2::Block;

use super::Upcoming;

pub(super) fn compress(x: &Block, y: &Block, out: &mut Block, accumulate: bool, upcoming: Upcoming) {
    upcoming.request();
    let mut r = *x;
    r ^= y;
    let mut q = r;
    let words = q.as_mut();
    for row in words.as_chunks_mut::<16>().0 {
        permute(row);
    }
    for column in (0..16).step_by(2) {
        let place = |i: usize| column + i / 2 * 16 + i % 2;
        let mut state = std::array::from_fn(|i| words[place(i)]);
        permute(&mut state);
        for (i, word) in state.into_iter().enumerate() {
            words[place(i)] = word;
        }
    }
    q ^= &r;
    if accumulate {
        *out ^= &q;
    } else {
        *out = q;
    }
}

/// The permutation P (section 3.6): columns, then diagonals.
#[expect(clippy::inline_always, reason = "a call takes twice as long, because the words leave the registers")]
#[inline(always)]
fn permute(v: &mut [u64; 16]) {
    for i in 0..4 {
        mix(v, [i, 4 + i, 8 + i, 12 + i]);
    }
    for i in 0..4 {
        mix(v, [i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4]);
    }
}

/// GB of section 3.6.
#[expect(clippy::inline_always, reason = "as above")]
#[inline(always)]
fn mix(words: &mut [u64; 16], [a, b, c, d]: [usize; 4]) {
    for [first, second] in [[32, 24], [16, 63]] {
        words[a] = sum(words[a], words[b]);
        words[d] = (words[d] ^ words[a]).rotate_right(first);
        words[c] = sum(words[c], words[d]);
        words[b] = (words[b] ^ words[c]).rotate_right(second);
    }
}

/// a + b + 2 · (low half of a) · (low half of b).
#[inline]
fn sum(a: u64, b: u64) -> u64 {
    let product = (a & u64::from(u32::MAX)) * (b & u64::from(u32::MAX));
    a.wrapping_add(b).wrapping_add(product << 1)
}
