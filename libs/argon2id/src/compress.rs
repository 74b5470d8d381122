//! The compression function G of RFC 9106, section 3.5, for the instructions of the machine.

use argon2::Block;

#[cfg(target_arch = "x86_64")]
#[macro_use]
mod vectors;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

/// Writes G of two blocks to a third one. With `true`, the third block becomes its XOR with G, as in all
/// passes but the first.
pub(crate) type Compress = fn(&Block, &Block, &mut Block, bool);

/// An implementation that this machine can run.
#[derive(Clone, Copy)]
pub struct Backend {
    name: &'static str,
    pub(crate) compress: Compress,
}

impl Backend {
    /// Returns the implementations that this machine can run, the fastest first.
    pub fn available() -> Vec<Self> {
        let backend = |name, compress| Self { name, compress };
        [
            #[cfg(target_arch = "x86_64")]
            avx512::compression().map(|compress| backend("avx512", compress)),
            #[cfg(target_arch = "x86_64")]
            avx2::compression().map(|compress| backend("avx2", compress)),
            Some(backend("portable", portable::compress)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns the name of the instructions: `avx512`, `avx2` or `portable`.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Requests a block from memory, so that it is in the cache when it is used.
pub(crate) fn prefetch(block: &Block) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in block.as_ref().as_chunks::<8>().0 {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        #[expect(unsafe_code, reason = "the function takes a pointer")]
        // SAFETY: the instruction is part of every x86-64 processor, and the pointer is that of a reference.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = block;
}
