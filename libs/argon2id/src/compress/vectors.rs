//! G in vector registers, as a macro: its functions need the attribute that enables the instructions of a backend.

/// Defines `compression` for the vectors `V` of `WORDS` words of a module, which also defines their operations. The arguments are the
/// features of the processor that they need, the attribute that enables these, the class of the registers, and the functions that load and
/// store a vector.
macro_rules! compress_in_vectors {
    ([$($name:tt)+], $feature:meta, $register:ident, $load:ident, $store:ident) => {
        /// Returns the function if the processor has the instructions.
        pub(super) fn compression() -> Option<Compress> {
            #[expect(unsafe_code, reason = "a call of a function that needs instructions")]
            let compress: Compress = |x, y, out, accumulate, upcoming| {
                // SAFETY: the function is returned only if the processor has the instructions.
                unsafe { compress(x, y, out, accumulate, upcoming) }
            };
            let has_instructions = $(is_x86_feature_detected!($name))&&+;
            has_instructions.then_some(compress)
        }

        const VECTORS: usize = 128 / WORDS;
        /// Vectors of a row of 16 words.
        const ROW: usize = 16 / WORDS;
        /// Lines that a call of `mix` requests.
        const PART: usize = LINES / (4 * VECTORS / 16);

        #[$feature]
        fn compress(x: &Block, y: &Block, out: &mut Block, accumulate: bool, upcoming: Upcoming) {
            let (x, y, out) = (x.as_ref(), y.as_ref(), out.as_mut());
            let mut q = [zero(); VECTORS];
            for (i, q) in q.iter_mut().enumerate() {
                *q = xor(load(x, i), load(y, i));
            }
            let mut lines = (0..LINES).step_by(PART);
            let mut requests = || (upcoming, lines.next().unwrap_or_default());
            // Rows. A vector has one of the four rows of the 4x4 matrix of P.
            for q in q.as_chunks_mut::<16>().0 {
                let [mut a, mut b, mut c, mut d] = split(q);
                mix(&mut a, &mut b, &mut c, &mut d, requests());
                for i in 0..4 {
                    (b[i], c[i], d[i]) = (left_1(b[i]), left_2(c[i]), left_3(d[i]));
                }
                mix(&mut a, &mut b, &mut c, &mut d, requests());
                for i in 0..4 {
                    (b[i], c[i], d[i]) = (left_3(b[i]), left_2(c[i]), left_1(d[i]));
                }
                q.copy_from_slice(join([a, b, c, d]).as_flattened());
            }
            // Columns. A row of the matrix is in two vectors, next to those of the neighbouring columns.
            for i in (0..ROW).step_by(2) {
                let four = |at: usize| [q[at], q[at + ROW], q[at + 1], q[at + 1 + ROW]];
                let [mut a, mut b] = [four(i), four(i + 2 * ROW)];
                let [mut c, mut d] = [four(i + 4 * ROW), four(i + 6 * ROW)];
                mix(&mut a, &mut b, &mut c, &mut d, requests());
                (b, c, d) = (pairs_left_1(b), pairs_left_2(c), pairs_left_3(d));
                mix(&mut a, &mut b, &mut c, &mut d, requests());
                (b, c, d) = (pairs_left_3(b), pairs_left_2(c), pairs_left_1(d));
                for k in 0..2 {
                    let (m, n) = (2 * k, 2 * k + 1);
                    // An array, because the compiler does not unroll a chain of iterators, which would take three times as long.
                    let column = [a[m], a[n], b[m], b[n], c[m], c[n], d[m], d[n]];
                    for (row, z) in column.into_iter().enumerate() {
                        let place = i + k + row * ROW;
                        let mut z = xor(z, xor(load(x, place), load(y, place)));
                        if accumulate {
                            z = xor(z, load(out, place));
                        }
                        store(out, place, z);
                    }
                }
            }
        }

        #[inline]
        #[$feature]
        fn load(words: &[u64], i: usize) -> V {
            let words = &words.as_chunks::<WORDS>().0[i];
            #[expect(unsafe_code, reason = "the function takes a pointer")]
            // SAFETY: the pointer is that of a vector of words, and needs no alignment.
            unsafe {
                $load(words.as_ptr().cast())
            }
        }

        #[inline]
        #[$feature]
        fn store(words: &mut [u64], i: usize, v: V) {
            let words = &mut words.as_chunks_mut::<WORDS>().0[i];
            #[expect(unsafe_code, reason = "the function takes a pointer")]
            // SAFETY: the pointer is that of a vector of words, and needs no alignment.
            unsafe {
                $store(words.as_mut_ptr().cast(), v);
            }
        }

        #[inline]
        #[$feature]
        fn pairs_left_1(v: [V; 4]) -> [V; 4] {
            [middle(v[0], v[1]), middle(v[1], v[0]), middle(v[2], v[3]), middle(v[3], v[2])]
        }

        #[inline]
        #[$feature]
        fn pairs_left_2(v: [V; 4]) -> [V; 4] {
            [v[1], v[0], v[3], v[2]]
        }

        #[inline]
        #[$feature]
        fn pairs_left_3(v: [V; 4]) -> [V; 4] {
            [middle(v[1], v[0]), middle(v[0], v[1]), middle(v[3], v[2]), middle(v[2], v[3])]
        }

        /// GB of section 3.6. The four vectors are independent of each other, so the processor computes them at the same time: 20 %
        /// faster than two, although some are kept in memory. Requests `PART` lines of the upcoming blocks, beginning with `line`.
        #[inline]
        #[$feature]
        fn mix(
            a: &mut [V; 4],
            b: &mut [V; 4],
            c: &mut [V; 4],
            d: &mut [V; 4],
            (upcoming, line): (Upcoming, usize),
        ) {
            for i in 0..4 {
                a[i] = sum(a[i], b[i]);
                d[i] = rotate_32(xor(d[i], a[i]));
            }
            a[0] = request(a[0], upcoming.line(line));
            for i in 0..4 {
                c[i] = sum(c[i], d[i]);
                b[i] = rotate_24(xor(b[i], c[i]));
            }
            if PART == 4 {
                c[0] = request(c[0], upcoming.line(line + 2));
            }
            for i in 0..4 {
                a[i] = sum(a[i], b[i]);
                d[i] = rotate_16(xor(d[i], a[i]));
            }
            a[0] = request(a[0], upcoming.line(line + 1));
            for i in 0..4 {
                c[i] = sum(c[i], d[i]);
                b[i] = rotate_63(xor(b[i], c[i]));
            }
            if PART == 4 {
                c[0] = request(c[0], upcoming.line(line + 3));
            }
        }

        /// Requests lines from memory after `v` is computed. Without this dependency, the compiler moves all requests to one place.
        #[inline]
        #[$feature]
        fn request(v: V, [first, second]: [*const i8; 2]) -> V {
            let result;
            #[expect(unsafe_code, reason = "the compiler has no instruction that depends on a vector")]
            // SAFETY: the instruction has no effect on registers and memory, and ignores an address without memory.
            unsafe {
                std::arch::asm!(
                    "prefetcht0 [{first}] # {v}",
                    "prefetcht0 [{second}]",
                    first = in(reg) first,
                    second = in(reg) second,
                    v = inout($register) v => result,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            result
        }

        /// a + b + 2 · (low half of a) · (low half of b).
        #[inline]
        #[$feature]
        fn sum(a: V, b: V) -> V {
            let product = multiply(a, b);
            add(add(a, b), add(product, product))
        }
    };
}

/// Defines functions of vectors.
macro_rules! operations {
    (#[$feature:meta] $($(#[$doc:meta])* $name:ident($($arg:ident),*) = $value:expr;)*) => {
        $(
            $(#[$doc])*
            #[inline]
            #[$feature]
            fn $name($($arg: V),*) -> V {
                $value
            }
        )*
    };
}
