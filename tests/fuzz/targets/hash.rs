//! Argon2id with AVX2, compared with the crate `argon2`.

#![no_main]

use argon2::{Algorithm, Argon2, Block, Params, Version};
use libfuzzer_sys::fuzz_target;

// Memory, passes, lanes, salt and password.
fuzz_target!(|input: (u8, u8, u8, [u8; 16], &[u8])| {
    let (memory, time, lanes, salt, password) = input;
    let lanes = 1 + u32::from(lanes % 4);
    let memory = lanes * 8 + u32::from(memory);
    let Ok(params) = Params::new(memory, 1 + u32::from(time % 3), lanes, Some(32)) else { return };
    let mut expected = [0; 32];
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone());
    argon2.hash_password_into(password, &salt, &mut expected).expect("valid parameters");
    let hash_into = argon2id::with_avx2().expect("a processor with AVX2");
    let (mut tag, mut blocks) = ([0; 32], vec![Block::default(); params.block_count()]);
    hash_into(&params, password, &salt, &mut tag, &mut blocks, &mut || {}).expect("valid parameters");
    assert_eq!(tag, expected);
});
