// SPDX-License-Identifier: GPL-2.0

//! A bounded run of the fuzz targets: the seeds, and everything near them.

use crate::fuzz;
use proptest::prelude::*;
use std::{
    fs,
    path::Path, //
};

/// Calls `target` with each seed, all its beginnings, and each seed with one byte changed.
fn near_seeds(name: &str, target: fn(&[u8])) {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/seeds")
        .join(name);
    let mut count = 0;
    for entry in fs::read_dir(seeds).unwrap() {
        let mut seed = fs::read(entry.unwrap().path()).unwrap();
        count += 1;
        for len in 0..=seed.len() {
            target(&seed[..len]);
        }
        for at in 0..seed.len() {
            let original = seed[at];
            for value in [0, 1, 0x7f, 0xff, original ^ 1, original ^ 0x80, !original] {
                seed[at] = value;
                target(&seed);
            }
            seed[at] = original;
        }
    }
    assert!(count >= 4, "the seeds are missing");
}

#[test]
fn messages_near_the_seeds() {
    near_seeds("message", fuzz::message);
}

#[test]
fn conversations_near_the_seeds() {
    near_seeds("conversation", fuzz::conversation);
}

proptest! {
    #[test]
    fn any_message(data in prop::collection::vec(any::<u8>(), 0..700)) {
        fuzz::message(&data);
    }

    #[test]
    fn any_conversation(data in prop::collection::vec(any::<u8>(), 0..700)) {
        fuzz::conversation(&data);
    }
}
