//! G in vector registers, as a macro: its functions need the attribute that enables the instructions of a backend.

/// Defines `compress` for the vectors `V` of `WORDS` words of a module, which also defines their operations.
macro_rules! compress_in_vectors {
    ($feature:meta) => {
        const VECTORS: usize = 128 / WORDS;
        /// Vectors of a row of 16 words.
        const ROW: usize = 16 / WORDS;

        #[$feature]
        fn compress(x: &Block, y: &Block, out: &mut Block, accumulate: bool) {
            let (x, y, out) = (x.as_ref(), y.as_ref(), out.as_mut());
            let mut q = [zero(); VECTORS];
            for (i, q) in q.iter_mut().enumerate() {
                *q = xor(load(x, i), load(y, i));
            }
            // Rows. A vector has one of the four rows of the 4x4 matrix of P.
            for q in q.as_chunks_mut::<8>().0 {
                let [mut a, mut b, mut c, mut d] = split(q);
                mix(&mut a, &mut b, &mut c, &mut d);
                for i in 0..2 {
                    (b[i], c[i], d[i]) = (left_1(b[i]), left_2(c[i]), left_3(d[i]));
                }
                mix(&mut a, &mut b, &mut c, &mut d);
                for i in 0..2 {
                    (b[i], c[i], d[i]) = (left_3(b[i]), left_2(c[i]), left_1(d[i]));
                }
                *q = join([a, b, c, d]);
            }
            // Columns. A row of the matrix is in two vectors, next to those of the neighbouring columns.
            for i in 0..ROW {
                let pair = |row: usize| [q[i + row * ROW], q[i + (row + 1) * ROW]];
                let [mut a, mut b, mut c, mut d] = [pair(0), pair(2), pair(4), pair(6)];
                mix(&mut a, &mut b, &mut c, &mut d);
                b = [middle(b[0], b[1]), middle(b[1], b[0])];
                c = [c[1], c[0]];
                d = [middle(d[1], d[0]), middle(d[0], d[1])];
                mix(&mut a, &mut b, &mut c, &mut d);
                b = [middle(b[1], b[0]), middle(b[0], b[1])];
                c = [c[1], c[0]];
                d = [middle(d[0], d[1]), middle(d[1], d[0])];
                let column = [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]];
                for (row, z) in column.into_iter().enumerate() {
                    let place = i + row * ROW;
                    let mut z = xor(z, xor(load(x, place), load(y, place)));
                    if accumulate {
                        z = xor(z, load(out, place));
                    }
                    store(out, place, z);
                }
            }
        }

        /// GB of section 3.6. Two vectors are independent of each other, so the processor computes them at the same time.
        #[inline]
        #[$feature]
        fn mix(a: &mut [V; 2], b: &mut [V; 2], c: &mut [V; 2], d: &mut [V; 2]) {
            for i in 0..2 {
                a[i] = sum(a[i], b[i]);
                d[i] = rotate_32(xor(d[i], a[i]));
            }
            for i in 0..2 {
                c[i] = sum(c[i], d[i]);
                b[i] = rotate_24(xor(b[i], c[i]));
            }
            for i in 0..2 {
                a[i] = sum(a[i], b[i]);
                d[i] = rotate_16(xor(d[i], a[i]));
            }
            for i in 0..2 {
                c[i] = sum(c[i], d[i]);
                b[i] = rotate_63(xor(b[i], c[i]));
            }
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
