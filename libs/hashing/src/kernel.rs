//! The implementation of Argon2id: `argon2id` on processors with AVX2, or the `argon2` crate.
//!
//! The crate checks the other implementation before its first hash, and later one hash in 4,096. After a difference, only the crate is
//! used.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use argon2::{Algorithm, Argon2, Block, Error, Params, Version};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The names of `argon2id` and of the `argon2` crate in metrics and logs.
const AVX2: &str = "avx2";
const CRATE: &str = "crate";
const CHECK_INTERVAL: u64 = 4096;
/// Memory in KiB, iterations and lanes of the hashes of the test. It takes a few milliseconds.
const TESTED: [(u32, u32, u32); 3] = [(64, 1, 1), (129, 3, 2), (2560, 2, 4)];

/// Which implementation computes the hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKernel {
    /// The fastest one of the processor, checked by the `argon2` crate.
    Auto,
    /// The `argon2` crate.
    Crate,
}

/// Computes a hash with parameters, password and salt.
type Compute = dyn Fn(&Params, &[u8], &[u8], &mut [u8], &mut [Block]) -> Result<(), Error> + Send + Sync;

/// The implementation in use, shared by the workers.
pub(crate) struct Kernel {
    name: &'static str,
    compute: Box<Compute>,
    is_trusted: AtomicBool,
    computed: AtomicU64,
    metric: Family<Vec<(&'static str, &'static str)>, Gauge>,
}

impl Kernel {
    pub(crate) fn new(setting: HashKernel) -> Self {
        match (setting, argon2id::with_avx2()) {
            (HashKernel::Auto, Some(hash_into)) => {
                // Between two parts of a hash, other threads can run: without it, a session check waits for up to 4 ms, the time
                // slice of the scheduler.
                Self::tested(
                    AVX2,
                    Box::new(move |params, password, salt, out, blocks| {
                        hash_into(params, password, salt, out, blocks, &mut std::thread::yield_now)
                    }),
                )
            }
            _ => Self::untested(CRATE, Box::new(by_the_crate)),
        }
    }

    fn tested(name: &'static str, compute: Box<Compute>) -> Self {
        let kernel = Self::untested(name, compute);
        for (memory, time, lanes) in TESTED {
            let Ok(params) = Params::new(memory, time, lanes, Some(32)) else { continue };
            let mut blocks = vec![Block::new(); params.block_count()];
            let (mut tag, mut expected) = ([0; 32], [1; 32]);
            let (password, salt) = (b"password", b"salt of the test");
            let result = (kernel.compute)(&params, password, salt, &mut tag, &mut blocks);
            let expected_result = by_the_crate(&params, password, salt, &mut expected, &mut blocks);
            if (result, tag) != (expected_result, expected) {
                kernel.stop();
            }
        }
        kernel
    }

    fn untested(name: &'static str, compute: Box<Compute>) -> Self {
        let metric = Family::default();
        let kernel = Self { name, compute, is_trusted: true.into(), computed: AtomicU64::default(), metric };
        kernel.metric.get_or_create(&vec![("kernel", kernel.name)]).set(1);
        kernel
    }

    /// Returns `avx2` or `crate`.
    pub(crate) fn name(&self) -> &'static str {
        if self.is_trusted.load(Ordering::Relaxed) { self.name } else { CRATE }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Implementation of Argon2id in use: avx2 or crate; always 1";
        registry.register("hash_kernel", help, self.metric.clone());
    }

    /// Computes a hash. `blocks` is working memory.
    pub(crate) fn hash_into(
        &self,
        params: &Params,
        password: &[u8],
        salt: &[u8],
        out: &mut [u8],
        blocks: &mut [Block],
    ) -> Result<(), Error> {
        if !self.is_trusted.load(Ordering::Relaxed) {
            return by_the_crate(params, password, salt, out, blocks);
        }
        (self.compute)(params, password, salt, out, blocks)?;
        let computed = self.computed.fetch_add(1, Ordering::Relaxed);
        if self.name != CRATE && computed.is_multiple_of(CHECK_INTERVAL) {
            let tag = out.to_vec();
            by_the_crate(params, password, salt, out, blocks)?;
            if tag != out {
                self.stop();
            }
        }
        Ok(())
    }

    /// Uses only the crate from now on.
    fn stop(&self) {
        tracing::error!(
            kernel = self.name,
            "failed to compute a correct password hash; using the argon2 crate"
        );
        self.is_trusted.store(false, Ordering::Relaxed);
        self.metric.clear();
        self.metric.get_or_create(&vec![("kernel", CRATE)]).set(1);
    }
}

fn by_the_crate(
    params: &Params,
    password: &[u8],
    salt: &[u8],
    out: &mut [u8],
    blocks: &mut [Block],
) -> Result<(), Error> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone())
        .hash_password_into_with_memory(password, salt, out, blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(kernel: &Kernel) -> [u8; 32] {
        let params = Params::new(64, 1, 1, Some(32)).unwrap();
        let mut out = [0; 32];
        kernel.hash_into(&params, b"password", b"saltsalt", &mut out, &mut vec![Block::new(); 64]).unwrap();
        out
    }

    fn metric(kernel: &Kernel) -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        kernel.register(&mut registry);
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).collect()
    }

    /// A kernel with a wrong result after a number of hashes.
    fn broken_after(correct: u64) -> Box<Compute> {
        let count = AtomicU64::new(0);
        Box::new(move |params, password, salt, out, blocks| {
            by_the_crate(params, password, salt, out, blocks)?;
            if count.fetch_add(1, Ordering::Relaxed) >= correct {
                out[31] ^= 1;
            }
            Ok(())
        })
    }

    #[test]
    fn the_setting_selects_avx2_if_the_processor_has_it_or_the_crate() {
        let (auto, by_crate) = (Kernel::new(HashKernel::Auto), Kernel::new(HashKernel::Crate));
        assert_eq!(auto.name(), if argon2id::with_avx2().is_some() { AVX2 } else { CRATE });
        assert_eq!(metric(&auto), format!("hash_kernel{{kernel=\"{}\"}} 1", auto.name()));
        assert_eq!(metric(&by_crate), "hash_kernel{kernel=\"crate\"} 1");
        assert_eq!(hash(&auto), hash(&by_crate));
    }

    #[test]
    fn a_kernel_that_fails_its_test_is_not_used() {
        for correct in 0..3 {
            let kernel = Kernel::tested("broken", broken_after(correct));
            assert_eq!(metric(&kernel), "hash_kernel{kernel=\"crate\"} 1", "{correct} correct hashes");
            assert_eq!(hash(&kernel), hash(&Kernel::new(HashKernel::Crate)));
        }
        assert_eq!(Kernel::tested("correct", broken_after(3)).name(), "correct");
    }

    #[test]
    fn one_hash_in_4096_is_repeated_by_the_crate_and_a_difference_stops_the_kernel() {
        let correct = hash(&Kernel::new(HashKernel::Crate));
        let kernel = Kernel::untested("broken", broken_after(1));
        assert_eq!(hash(&kernel), correct);
        for _ in 1..CHECK_INTERVAL {
            assert_ne!(hash(&kernel), correct);
        }
        assert_eq!(kernel.name(), "broken");
        assert_eq!(hash(&kernel), correct, "the result of the crate is used");
        assert_eq!(kernel.name(), "crate");
        assert_eq!(hash(&kernel), correct);
    }
}
